package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) sagaCommand() *cobra.Command {
	return group("saga", "Look at sagas: where they are, and what led there",
		"Looks at sagas: work in several steps that is taken back when it cannot be finished.", a.sagaList(), a.sagaShow())
}

func (a *app) sagaList() *cobra.Command {
	var filter schema.SagaFilter
	var status, after string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sagas by name and id",
		Long: `Lists sagas by name and id, a page at a time: --after continues behind the last id of the page before.

A saga that is stuck could not take something back. It goes on when the dead letter that says so is
replayed; ` + "`millbridge saga show <id>`" + ` names it.`,
		Example: `  millbridge saga list --status stuck
  millbridge saga list --saga loan --idle 72h
  millbridge saga list --json | jq 'select(.step == "approve")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status != "" && !slices.Contains(sagaStatuses, schema.SagaStatus(status)) {
				return usagef("--status is one of %s", joined(sagaStatuses))
			}
			if filter.Limit < 1 || filter.Limit > 10000 {
				return usagef("--limit must be between 1 and 10000")
			}
			if filter.Idle < 0 {
				return usagef("--idle must not be negative")
			}
			filter.Status = schema.SagaStatus(status)
			if after != "" {
				var err error
				if filter.AfterSaga, filter.AfterID, err = sagaID(after); err != nil {
					return err
				}
			}
			return a.withDatabase(cmd, func(ctx context.Context, o *opened) error {
				list, err := o.ops.Sagas(ctx, filter)
				if err != nil {
					return err
				}
				return a.printSagas(list, filter.Limit)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&status, "status", "", "only these: "+joined(sagaStatuses))
	f.StringVar(&filter.Saga, "saga", "", "only sagas of this name")
	f.StringVar(&filter.Tenant, "tenant", "", "only of this tenant")
	f.DurationVar(&filter.Idle, "idle", 0, "only those where nothing has happened for so long")
	f.StringVar(&after, "after", "", "only behind this id")
	f.IntVar(&filter.Limit, "limit", 100, "at most this many")
	return cmd
}

var sagaStatuses = []schema.SagaStatus{
	schema.SagaRunning, schema.SagaWaiting, schema.SagaCompensating, schema.SagaStuck, schema.SagaDone, schema.SagaCompensated,
}

func joined(list []schema.SagaStatus) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// sagaID splits what the list shows as a saga's id.
func sagaID(s string) (name, id string, err error) {
	name, id, ok := strings.Cut(s, "/")
	if !ok || name == "" || id == "" {
		return "", "", usagef("%q is not the id of a saga: want <saga>/<id>, as in loan/4711", s)
	}
	return name, id, nil
}

func (a *app) printSagas(list []ops.Saga, limit int) error {
	if a.flags.json {
		for _, s := range list {
			s.Reason = a.redact(s.Reason)
			if err := object(a.env.Stdout, s); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.env.Stdout, "there are no sagas")
		return err
	}
	var lines [][]string
	for _, s := range list {
		lines = append(lines, []string{
			s.Saga + "/" + s.ID, string(s.Status), s.Step, strconv.Itoa(s.Events), age(a.since(s.UpdatedAt)), short(a.sagaNote(s), 80),
		})
	}
	table(a.env.Stdout, []string{"ID", "STATUS", "STEP", "EVENTS", "IDLE", ""}, lines)
	if last := list[len(list)-1]; len(list) == limit {
		fmt.Fprintf(a.env.Stderr, "there may be more: --after %s\n", escape(last.Saga+"/"+last.ID))
	}
	return nil
}

func (a *app) since(t time.Time) time.Duration { return max(a.env.Now().Sub(t), 0) }

// sagaNote says what a saga is about: what it waits for while it goes forward, else why it failed.
func (a *app) sagaNote(s ops.Saga) string {
	if s.Status == schema.SagaWaiting {
		return strings.Join(s.Waits, "; ")
	}
	return a.redact(s.Reason)
}

func (a *app) sagaShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show <saga>/<id>",
		Short: "Show a saga with its ledger",
		Long: `Shows where a saga is, its state, and its ledger: each step with why it was taken and what it asked
others to do. Messages to the saga that were given up are listed; a replay of one goes on from there.`,
		Example: `  millbridge saga show loan/4711
  millbridge saga show loan/4711 --json | jq '.ledger[].rationale'`,
		Args: needArgs(1, 1, "a saga's id as `saga list` shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, id, err := sagaID(args[0])
			if err != nil {
				return err
			}
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				found, err := o.ops.Saga(ctx, name, id)
				if err != nil {
					return err
				}
				if a.flags.json {
					return object(a.env.Stdout, found)
				}
				a.printSaga(found)
				return nil
			})
		},
	}
}

func (a *app) printSaga(f ops.FoundSaga) {
	w, p := a.env.Stdout, a.paint()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-9s %s\n", name, escape(value))
		}
	}
	line("saga", f.Saga.Saga+"/"+f.ID)
	line("tenant", f.Tenant)
	line("status", string(f.Status))
	line("step", f.Step)
	line("reason", a.redact(f.Reason))
	for _, wait := range f.Waits {
		line("waits for", wait)
	}
	line("started", stamp(f.CreatedAt))
	if text := payloadText(f.State); text != "" {
		fmt.Fprintln(w, "state")
		fmt.Fprintln(w, indent(text, "    "))
	}
	fmt.Fprintln(w)
	for _, ev := range f.Ledger {
		head := strconv.Itoa(ev.N) + "  " + stamp(ev.At) + "  "
		fmt.Fprintln(w, head+p.bold(escape(strings.TrimSpace(ev.Step+" "+ev.Kind)))+escape(colon(a.redact(ev.Rationale))))
		for _, in := range intentLines(ev.Intents) {
			fmt.Fprintln(w, strings.Repeat(" ", len(head))+escape(in))
		}
	}
	for _, l := range f.Letters {
		fmt.Fprintln(w, p.bad("given up: ")+escape("message "+l.ID+" ("+l.Name+", "+l.Cause+")"+colon(a.redact(l.Error))))
		fmt.Fprintln(w, "    `millbridge poison replay "+escape(l.ID)+"` goes on from there")
	}
	for _, u := range f.Unknown {
		fmt.Fprintln(w, p.busy("not known: ")+escape(a.redact(u)))
	}
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// intentLines says in one line each what a step asked others to do.
func intentLines(raw json.RawMessage) []string {
	var intents []struct {
		ID      string `json:"id"`
		Target  string `json:"target"`
		Key     string `json:"idempotency_key"`
		Payload struct {
			Action string          `json:"action"`
			Args   json.RawMessage `json:"args"`
		} `json:"payload"`
		Delay string `json:"delay"`
		Call  bool   `json:"call"`
	}
	if json.Unmarshal(raw, &intents) != nil {
		return nil
	}
	var lines []string
	for _, in := range intents {
		verb := "tells"
		if in.Call {
			verb = "asks"
		}
		s := fmt.Sprintf("%s %s.%s, key %s, job %s", verb, in.Target, in.Payload.Action, in.Key, in.ID)
		if in.Delay != "" {
			s += ", after " + in.Delay
		}
		lines = append(lines, s)
	}
	return lines
}
