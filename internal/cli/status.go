package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
)

func (a *app) statusCommand() *cobra.Command {
	var tally bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what waits, what runs and what is wrong",
		Long: `Shows backlogs, shards, streams, circuits, consumers, targets without a consumer and dead letters,
and says what is wrong. Each part is asked for at once and has 1.5 seconds; what did not answer is
unknown, which is never the same as nothing. Exit code 3 if something is wrong.

With --tally it also adds everything up: what the ledger says was sent must be found again in the
streams, the inbox and the dead letters. That holds for a quiet bridge of which nothing has expired or
been forgotten yet; ` + "`millbridge verify`" + ` has no such limits.`,
		Example: `  millbridge status
  millbridge status --tally
  millbridge status --json | jq -r '.reasons[]'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				st := o.ops.Status(ctx)
				var sum *ops.Tally
				if tally {
					t, err := o.ops.Tally(ctx)
					if err != nil {
						return err
					}
					sum = &t
				}
				st.Reasons = a.redactAll(st.Reasons)
				if a.flags.json {
					err := object(a.env.Stdout, struct {
						ops.Status
						Tally *ops.Tally `json:"tally,omitempty"`
					}{st, sum})
					if err != nil {
						return err
					}
				} else {
					a.printStatus(o.config.String(), st)
					if sum != nil {
						fmt.Fprintln(a.env.Stdout)
						a.printTally(a.env.Stdout, *sum)
					}
				}
				switch {
				case !st.OK:
					return wrongError{withHint(fmt.Errorf("not ok: %s", count(len(st.Reasons), "reason")), "the lines under NOT OK say what to do")}
				case sum != nil && sum.Settled && !sum.Balanced:
					return wrongError{withHint(fmt.Errorf("the tally does not balance"), "run it once more; if it stays, `millbridge show <id>` traces single messages")}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&tally, "tally", false, "add everything up and compare")
	return cmd
}

func (a *app) redactAll(lines []string) []string {
	for i := range lines {
		lines[i] = a.redact(lines[i])
	}
	return lines
}

func (a *app) printStatus(using string, st ops.Status) {
	w, p := a.env.Stdout, a.paint()
	fmt.Fprintln(w, p.bold(escape(using)))
	if st.Database.Reachable {
		fmt.Fprintf(w, "outbox %s, schema %d", orDash(escape(st.Database.Outbox)), st.Database.SchemaVersion)
		if st.NATS.Reachable {
			fmt.Fprintf(w, ", nats-server %s", escape(st.NATS.Version))
		}
		fmt.Fprintln(w)
	}
	if st.OK {
		fmt.Fprintln(w, p.good("ok"))
	} else {
		fmt.Fprintln(w, p.bad("NOT OK"))
		for _, r := range st.Reasons {
			fmt.Fprintln(w, "  - "+escape(r))
		}
	}
	for _, n := range st.Notes {
		fmt.Fprintln(w, p.busy("note")+" "+escape(n))
	}
	section := func(title string, heading []string, rows [][]string) {
		if len(rows) > 0 {
			fmt.Fprintf(w, "\n%s\n", p.bold(title))
			table(w, heading, rows)
		}
	}
	section("Waiting in the database", []string{"WHERE", "FOR", "ROWS", "OLDEST"}, backlogRows(st))
	section("Shards", []string{"SHARD", "OWNER", "LEASE", "BATCH", "SENT"}, shardRows(st))
	section("Streams", []string{"STREAM", "MESSAGES", "OLDEST", "BYTES", "COPIES", "BY"}, streamRows(st))
	section("Circuits", []string{"HANDLER", "STATE", "FAILURES", "SINCE", "NEXT TRY", "LAST ERROR"}, circuitRows(st))
	section("Consumers", []string{"CONSUMER", "FOR", "WAITING", "IN FLIGHT", "AGAIN", "PULLING"}, consumerRows(st))
	if st.NATS.Reachable {
		fmt.Fprintf(w, "\n%s %s%d waiting, %d replayed, %d dropped\n", p.bold("Dead letters"), atLeast(st.Dead.AtLeast), st.Dead.Letters, st.Dead.Replayed, st.Dead.Dropped)
	}
}

func backlogRows(st ops.Status) (rows [][]string) {
	for _, b := range st.Backlogs {
		rows = append(rows, []string{b.Where, string(b.Stream) + " " + b.Group, strconv.FormatInt(b.Rows, 10), age(span(b.OldestSeconds))})
	}
	for _, s := range st.Stocks {
		if s.Rows > 0 {
			rows = append(rows, []string{"stock outbox", s.Topic, strconv.FormatInt(s.Rows, 10), age(span(s.OldestSeconds))})
		}
		if s.Left > 0 {
			rows = append(rows, []string{"stock, left", s.Topic, strconv.FormatInt(s.Left, 10), "-"})
		}
	}
	return rows
}

func shardRows(st ops.Status) (rows [][]string) {
	for _, s := range st.Shards {
		lease := "-"
		if s.LeaseSeconds > 0 {
			lease = age(span(s.LeaseSeconds))
		}
		rows = append(rows, []string{
			fmt.Sprintf("%s/%d", s.Stream, s.Shard), orDash(short(s.Owner, 13)), lease, strconv.FormatInt(s.Batch, 10), strconv.FormatInt(s.Sent, 10),
		})
	}
	return rows
}

func circuitRows(st ops.Status) (rows [][]string) {
	for _, c := range st.Circuits {
		state, since, next := "closed", "-", "-"
		if c.Open {
			state, since, next = "open", c.Since.UTC().Format(time.RFC3339), age(span(max(c.NextSeconds, 0)))
		}
		if c.Disabled {
			state, next = "disabled", "-"
		}
		rows = append(rows, []string{c.Handler, state, strconv.Itoa(c.Failures), since, next, short(c.Reason, 60)})
	}
	return rows
}

func streamRows(st ops.Status) (rows [][]string) {
	for _, s := range st.Streams {
		if s.Missing {
			rows = append(rows, []string{s.Name, "missing", "-", "-", "-", ""})
			continue
		}
		var by []string
		for _, group := range slices.Sorted(maps.Keys(s.Groups)) {
			by = append(by, fmt.Sprintf("%s %d", group, s.Groups[group]))
		}
		oldest := "-"
		if s.OldestSeconds > 0 {
			oldest = age(span(s.OldestSeconds))
		}
		rows = append(rows, []string{
			s.Name, strconv.FormatUint(s.Messages, 10), oldest, strconv.FormatUint(s.Bytes, 10), strconv.Itoa(s.Replicas), short(strings.Join(by, ", "), 60),
		})
	}
	return rows
}

func consumerRows(st ops.Status) (rows [][]string) {
	for _, c := range st.Consumers {
		pulling := "no"
		if c.Pulling {
			pulling = "yes"
		}
		what := strings.Join(c.Handlers, ", ")
		if c.OnlyReplays {
			what = "replays of " + what
		}
		rows = append(rows, []string{
			c.Name, short(what, 40), strconv.FormatUint(c.Waiting, 10), strconv.Itoa(c.InFlight), strconv.Itoa(c.Redelivered), pulling,
		})
	}
	return rows
}

// printTally shows the equations and what they are made of.
func (a *app) printTally(w io.Writer, t ops.Tally) {
	p := a.paint()
	var rows [][]string
	for _, h := range t.Handlers {
		kind := "target"
		if h.Subscription {
			kind = "subscription"
		}
		rows = append(rows, []string{
			h.Name, kind, strconv.FormatInt(h.Done, 10), strconv.FormatInt(h.Running, 10), strconv.FormatInt(h.Dead, 10),
			strconv.FormatInt(h.Dropped, 10), strconv.FormatInt(h.Replays, 10),
		})
	}
	if len(rows) > 0 {
		table(w, []string{"HANDLER", "KIND", "DONE", "RUNNING", "DEAD", "DROPPED", "REPLAYS"}, rows)
		fmt.Fprintln(w)
	}
	for _, c := range t.Checks {
		sign, mark := "=", p.good("ok")
		if !c.OK {
			sign, mark = "≠", p.bad("differs")
		}
		fmt.Fprintf(w, "%-38s %6d %s %-6d %s  %s\n", escape(c.Name), c.Left, sign, c.Right, mark, p.faint(escape(c.How)))
	}
	n := t.Waiting
	if !t.Settled {
		fmt.Fprintf(w, "%s outbox %d, scheduled %d, parked %d, stream of jobs %d, events being handled %d\n",
			p.busy("in motion"), n.Outbox, n.Scheduled, n.Parked, n.Jobs, n.Handing)
	}
	if t.Balanced {
		fmt.Fprintln(w, p.good("balanced: nothing lost, nothing doubled, nothing waiting"))
	}
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func atLeast(yes bool) string {
	if yes {
		return "at least "
	}
	return ""
}
