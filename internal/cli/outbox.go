package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) outboxCommand() *cobra.Command {
	return group("outbox", "Look at messages that are not in their stream yet",
		"Looks at the messages that were committed and are not in their stream yet.", a.outboxList())
}

func (a *app) outboxList() *cobra.Command {
	var filter schema.RowFilter
	var stream, status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List waiting messages, oldest first",
		Long: `Lists the messages that wait to be forwarded, oldest first, a page at a time: --after continues
behind the last sequence of the page before.

--status scheduled lists the messages that wait for their time, --status dead those that can never be
forwarded (parked). The words of other outboxes are understood. What left the outbox is not in it:
` + "`millbridge show <id>` finds a message wherever it is, `millbridge poison list`" + ` those given up by handlers.`,
		Example: `  millbridge outbox list
  millbridge outbox list --status scheduled --for crm
  millbridge outbox list --after 1200 --limit 50 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			where, err := rowsOf(status)
			if err != nil {
				return err
			}
			switch stream {
			case "", string(schema.Jobs), string(schema.Events):
				filter.Stream = schema.Stream(stream)
			default:
				return usagef("--stream is jobs or events")
			}
			if filter.Limit < 1 || filter.Limit > 10000 {
				return usagef("--limit must be between 1 and 10000")
			}
			return a.withDatabase(cmd, func(ctx context.Context, o *opened) error {
				rows, err := o.ops.Rows(ctx, where, filter)
				if err != nil {
					return err
				}
				return a.printRows(rows, filter.Limit)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&status, "status", string(ops.StatePending), "which messages: pending, scheduled or dead")
	f.StringVar(&filter.Group, "for", "", "only of this target, replayed handler or event")
	f.StringVar(&stream, "stream", "", "only jobs or only events")
	f.StringVar(&filter.ID, "id", "", "only the message with this id")
	f.Int64Var(&filter.After, "after", 0, "only behind this sequence")
	f.IntVar(&filter.Limit, "limit", 100, "at most this many")
	return cmd
}

// rowsOf says where the outbox keeps the messages with a status.
func rowsOf(status string) (where string, err error) {
	state, err := ops.ParseState(status)
	if err != nil {
		return "", usagef("--status: %v", err)
	}
	switch state {
	case ops.StateScheduled:
		return ops.InScheduled, nil
	case ops.StateDead:
		return ops.InParked, nil
	case ops.StateDone:
		return "", usageError{withHint(fmt.Errorf("--status: what is done has left the outbox"), "`millbridge show <id>` tells what became of a message")}
	}
	return ops.InOutbox, nil
}

func (a *app) printRows(rows []ops.Row, limit int) error {
	if a.flags.json {
		for _, r := range rows {
			r.Reason = a.redact(r.Reason)
			if err := object(a.env.Stdout, r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.env.Stdout, "nothing waits")
		return err
	}
	heading := []string{"SEQUENCE", "ID", "SUBJECT", "BYTES", "AGE", ""}
	var lines [][]string
	for _, r := range rows {
		extra := a.redact(r.Reason)
		if !r.DueAt.IsZero() {
			extra = "due " + stamp(r.DueAt)
		}
		lines = append(lines, []string{
			strconv.FormatInt(r.Sequence, 10), r.ID, short(r.Subject, 60), strconv.Itoa(r.Bytes), age(max(a.env.Now().Sub(r.Since), 0)), short(extra, 80),
		})
	}
	table(a.env.Stdout, heading, lines)
	if len(rows) == limit {
		_, err := fmt.Fprintf(a.env.Stdout, "there may be more: --after %d\n", rows[len(rows)-1].Sequence)
		return err
	}
	return nil
}
