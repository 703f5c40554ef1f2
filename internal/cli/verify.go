package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) verifyCommand() *cobra.Command {
	var quick, accept bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Account for every committed message",
		Long: `Adds up, for each stream, what the cursors say was sent, and finds all of it again: in the stream,
handled, among the dead letters, replayed, dropped by an operator. It names messages that are missing,
doubled or out of order as far as they can be named.

Without --accept it only reads. It stops nothing and may run at any time, while any number of
processes publish, forward and handle. What it counts it counts up to a cut: a moment at which the
cursors of all shards are known. A difference is reported when three looks within a few seconds find
it, so a message on its way is none.

It reads the streams and the inbox as a whole. --quick leaves out explicit idempotency keys and the
comparison of each event with each subscription.

Exit code 3 if something is unaccounted for, 1 if something could not be read, which proves nothing.`,
		Example: `  millbridge verify
  millbridge verify --json | jq .unaccounted
  millbridge verify --accept      # what differs now is known, for example after a restore: count from here`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				v, err := o.ops.Verify(ctx, ops.VerifyOptions{Quick: quick, Progress: a.progress})
				if errors.Is(err, schema.ErrNotMigrated) || errors.Is(err, schema.ErrSchemaTooNew) {
					return err
				}
				if err != nil {
					return withHint(err, "nothing is proved; run it again when database and NATS answer")
				}
				if accept {
					if err := a.accept(ctx, o, v); err != nil {
						return err
					}
				}
				if a.flags.json {
					err = object(a.env.Stdout, v)
				} else {
					a.printVerification(o.config.String(), v)
				}
				switch {
				case err != nil:
					return err
				case !v.OK && (!accept || v.Stays()):
					return wrongError{withHint(fmt.Errorf("%s unaccounted for", messages(v.Unaccounted)),
						"`millbridge show <id>` traces a message, `millbridge status` says what else is wrong; "+
							"`millbridge verify --accept` accepts a difference of numbers whose cause is known")}
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&quick, "quick", false, "leave out what takes time in proportion to the history")
	f.BoolVar(&accept, "accept", false, "accept the numbers that differ and the messages that are missing; other findings stay")
	return cmd
}

func messages(n int64) string {
	if n == 1 {
		return "1 message is"
	}
	return strconv.FormatInt(n, 10) + " messages are"
}

// accept notes the differences that were found as known.
func (a *app) accept(ctx context.Context, o *opened, v ops.Verification) error {
	n, err := o.ops.Accept(ctx, v)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.env.Stderr, "accepted a difference of %d; it is not reported again\n", n)
	return nil
}

// progress tells a person that something is going on.
func (a *app) progress(step string, done int64) {
	fmt.Fprintf(a.env.Stderr, "%s: %d\n", step, done)
}

func (a *app) printVerification(using string, v ops.Verification) {
	w, p := a.env.Stdout, a.paint()
	fmt.Fprintln(w, p.bold(escape(using)))
	var rows [][]string
	n := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, s := range v.Streams {
		rows = append(rows, []string{
			string(s.Stream), n(s.Pending), n(s.Scheduled), n(s.Parked), n(s.Sent), n(s.InStream), n(s.Settled), n(s.Expired),
			n(s.Unrecorded), n(s.Accepted), n(s.Unaccounted),
		})
	}
	fmt.Fprintf(w, "\n%s\n", p.bold("Streams"))
	table(w, []string{"STREAM", "PENDING", "SCHEDULED", "PARKED", "SENT", "IN STREAM", "SETTLED", "EXPIRED", "NO RECORD", "ACCEPTED", "UNACCOUNTED"}, rows)
	if len(v.Handlers) > 0 {
		rows = nil
		for _, h := range v.Handlers {
			kind := "target"
			if h.Subscription {
				kind = "subscription"
			}
			rows = append(rows, []string{
				h.Name, kind, n(h.Waiting), n(h.InFlight), n(h.Done), n(h.Dead), n(h.Replayed), n(h.Dropped), n(h.Forgotten), n(h.Unaccounted),
			})
		}
		fmt.Fprintf(w, "\n%s\n", p.bold("Handlers"))
		table(w, []string{"HANDLER", "KIND", "WAITING", "IN FLIGHT", "DONE", "DEAD", "REPLAYED", "DROPPED", "FORGOTTEN", "UNACCOUNTED"}, rows)
	}
	fmt.Fprintf(w, "\n%s %d waiting, %d replayed, %d dropped\n", p.bold("Dead letters"), v.Dead.Letters, v.Dead.Replayed, v.Dead.Dropped)
	if dropped := v.Streams; len(dropped) > 0 {
		var sum int64
		for _, s := range dropped {
			sum += s.Dropped
		}
		if sum > 0 {
			fmt.Fprintf(w, "%s %d\n", p.bold("Parked rows dropped"), sum)
		}
	}
	for _, note := range v.Notes {
		fmt.Fprintln(w, p.busy("note")+" "+escape(note))
	}
	fmt.Fprintln(w)
	if v.OK {
		fmt.Fprintf(w, "%s everything is accounted for (%s)\n", p.good("ok"), age(time.Duration(v.Seconds*float64(time.Second))))
		return
	}
	rows = nil
	for _, f := range v.Findings {
		rows = append(rows, []string{f.Kind, string(f.Stream), orDash(f.ID), orDash(f.Handler), n(f.Count), short(f.Detail, 160)})
	}
	fmt.Fprintln(w, p.bad("NOT ACCOUNTED FOR"))
	table(w, []string{"FINDING", "STREAM", "ID", "HANDLER", "MESSAGES", "WHAT"}, rows)
}
