package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show <id>",
		Short: "Show where a message is: attempts, last error, next try",
		Long: `Looks for a message everywhere it can be: outbox, scheduled and parked rows, streams, the inbox of
each handler and the dead letters, and shows the message itself.`,
		Example: `  millbridge show 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f
  millbridge show 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f --json | jq .places`,
		Args: needArgs(1, 1, "the id of a message"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				found, err := o.ops.Show(ctx, args[0])
				if err != nil {
					return err
				}
				if a.flags.json {
					return object(a.env.Stdout, found)
				}
				a.printFound(found)
				return nil
			})
		},
	}
}

func (a *app) printFound(f ops.Found) {
	w, p := a.env.Stdout, a.paint()
	if f.Message != nil {
		printMessage(w, *f.Message)
		fmt.Fprintln(w)
	}
	if len(f.Places) == 0 {
		fmt.Fprintln(w, "no trace of it was found")
	}
	for _, place := range f.Places {
		fmt.Fprintln(w, p.bold(place.At)+" "+escape(placeLine(place)))
		if place.LastError != "" {
			fmt.Fprintln(w, "    "+escape(a.redact(place.LastError)))
		}
	}
	for _, u := range f.Unknown {
		fmt.Fprintln(w, p.busy("not known: ")+escape(a.redact(u)))
	}
}

// placeLine says in one line what is known of a message at one place.
func placeLine(p ops.Place) string {
	var parts []string
	add := func(show bool, format string, args ...any) {
		if show {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(p.Handler != "", "of %s:", p.Handler)
	add(p.State != "", "%s", p.State)
	add(p.Running, "(running now)")
	add(p.Cause != "", "(%s)", p.Cause)
	add(p.Attempts > 0, "after %s", count(p.Attempts, "failed attempt"))
	add(p.Replay > 0, "replay %d", p.Replay)
	add(p.Stream != "", "%s", p.Stream)
	add(p.Sequence > 0, "at %d", p.Sequence)
	add(p.Subject != "", "%s", p.Subject)
	add(!p.DueAt.IsZero(), "due %s", stamp(p.DueAt))
	add(!p.NextTry.IsZero(), "next try %s", stamp(p.NextTry))
	add(!p.Since.IsZero(), "since %s", stamp(p.Since))
	return strings.Join(parts, " ")
}

// count says how many of a thing.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// printMessage shows a message with its whole payload.
func printMessage(w io.Writer, m ops.Message) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-13s %s\n", name, escape(value))
		}
	}
	line("undecodable", m.Undecodable)
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		for _, v := range m.Headers[k] {
			line("header", k+": "+v)
		}
	}
	line("id", m.ID)
	line("kind", strings.TrimSpace(m.Visibility+" "+m.Kind))
	line("target", m.Target)
	if m.Kind == "event" {
		line("name", m.Name)
	} else {
		line("action", m.Name)
	}
	line("replay of", m.ReplayOf)
	if m.Key != m.ID {
		line("key", m.Key)
	}
	line("ordering key", m.OrderingKey)
	line("tenant", m.Tenant)
	line("actor", m.Actor)
	line("request", m.RequestID)
	if !m.Time.IsZero() {
		line("time", stamp(m.Time))
	}
	line("from", m.Source)
	for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
		line("metadata", k+"="+m.Metadata[k])
	}
	line("content type", m.ContentType)
	fmt.Fprintf(w, "%-13s %d bytes\n", "payload", len(m.Payload))
	if text := payloadText(m.Payload); text != "" {
		fmt.Fprintln(w, indent(text, "    "))
	}
}

// payloadText renders a payload for a terminal: JSON indented, text escaped, all else as a hex dump.
func payloadText(payload []byte) string {
	var pretty bytes.Buffer
	switch {
	case len(payload) == 0:
		return ""
	case json.Indent(&pretty, payload, "", "  ") == nil:
		return escapeLines(pretty.String())
	case utf8.Valid(payload) && !bytes.ContainsRune(payload, 0):
		return escapeLines(string(payload))
	}
	return strings.TrimRight(hex.Dump(payload), "\n")
}

func indent(s, by string) string { return by + strings.ReplaceAll(s, "\n", "\n"+by) }
