package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/foreign"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

// importFlags say which rows are taken.
type importFlags struct {
	target   string
	statuses []string
	dryRun   bool
}

func (a *app) importCommand() *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use:   "import <file|->",
		Short: "Take over what is still pending in another outbox",
		Long: `Reads the rows of another outbox, one JSON object a line, from a file or standard input (-), and
publishes those that are pending. Stop the old workers first, then export the table.

Two kinds of rows are known. Rows with target, idempotency_key and a payload {"action", "args"} become
jobs for that target. Rows with kind and name become jobs and events; the payload may be the message's
own or the whole message with its context. Such a job's name is <target>.<action>, or the action of
the target given with --target.

All rows are checked before the first is written. They are written in batches, known by their
idempotency_key or else by their id: importing the same rows again, or going on after a stop, publishes
nothing twice for as long as keys are kept (30 days). Ids that are UUIDs are kept. A row that waits for
its next attempt waits until then; attempts start anew.

Rows that are done (delivered, dispatched) are counted and left. So are those that were given up
(dead_letter, dead_lettered), unless --status dead asks for them.`,
		Example: `  psql -XAtc "SELECT row_to_json(o) FROM outbox o ORDER BY id" | millbridge import - --dry-run
  millbridge import outbox.ndjson --target mail
  millbridge import outbox.ndjson --status dead`,
		Args: needArgs(1, 1, "a file or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := foreign.Options{Target: flags.target, Now: a.env.Now()}
			for _, word := range flags.statuses {
				state, err := ops.ParseState(word)
				switch {
				case err != nil:
					return usagef("--status: %v", err)
				case state == ops.StateDone:
					return usagef("--status: what is done is not published again")
				}
				opts.States = append(opts.States, state)
			}
			in, err := a.input(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.with(cmd, need{create: true}, func(ctx context.Context, o *opened) error {
				info, err := o.store.Info(ctx)
				if err != nil {
					return err
				}
				opts.MaxPayload = info.MaxPayload
				rows, err := foreign.Read(in, opts)
				if err != nil {
					return withHint(err, "nothing was written; correct the lines named above, or leave them out")
				}
				return a.importRows(ctx, o, rows, flags.dryRun)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&flags.target, "target", "", "the target of jobs whose rows name none")
	f.StringSliceVar(&flags.statuses, "status", []string{string(ops.StatePending)}, "which rows to publish: pending, dead or both")
	f.BoolVar(&flags.dryRun, "dry-run", false, "only check the rows and count them")
	return cmd
}

// input opens a file, or standard input for "-".
func (a *app) input(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.env.Stdin), nil
	}
	f, err := os.Open(name)
	return f, withHint(err, "name a file, or - for standard input")
}

// imported is what an import did.
type imported struct {
	Published int               `json:"published"`
	Existing  int               `json:"existing"` // were there before
	Left      map[ops.State]int `json:"left"`
	DryRun    bool              `json:"dry_run"`
}

// One transaction takes at most this much.
const (
	importRows  = 500
	importBytes = 8 << 20
)

func (a *app) importRows(ctx context.Context, o *opened, rows foreign.Rows, dryRun bool) error {
	done := imported{Left: rows.Left, DryRun: dryRun}
	if dryRun {
		done.Published = len(rows.Take)
		return a.printImported(done)
	}
	for rest := rows.Take; len(rest) > 0; {
		n := batchOf(rest)
		var receipts []schema.Receipt
		err := o.store.Unit(ctx, func(u schema.Unit) (err error) {
			receipts, err = u.Append(ctx, rest[:n])
			return err
		})
		if err != nil {
			err = fmt.Errorf("after %s: %w", count(done.Published+done.Existing, "message"), err)
			if errors.Is(err, schema.ErrKeyReused) {
				return withHint(err, "a message with that key and other content was published before; leave its row out")
			}
			return withHint(err, "run the same command again; what was published stays, and is not published twice")
		}
		for _, r := range receipts {
			if r.Existing {
				done.Existing++
			} else {
				done.Published++
			}
		}
		rest = rest[n:]
	}
	return a.printImported(done)
}

// batchOf says how many of the first messages go into one transaction.
func batchOf(envs []schema.Envelope) int {
	size := 0
	for i, e := range envs {
		if size += len(e.Payload); i == importRows || i > 0 && size > importBytes {
			return i
		}
	}
	return len(envs)
}

func (a *app) printImported(i imported) error {
	if a.flags.json {
		return object(a.env.Stdout, i)
	}
	said := "published"
	if i.DryRun {
		said = "would be published"
	}
	parts := []string{fmt.Sprintf("%s %s", count(i.Published, "message"), said)}
	if i.Existing > 0 {
		parts = append(parts, fmt.Sprintf("%d were there before", i.Existing))
	}
	states := make([]ops.State, 0, len(i.Left))
	for s := range i.Left {
		states = append(states, s)
	}
	slices.Sort(states)
	for _, s := range states {
		parts = append(parts, fmt.Sprintf("%d %s left", i.Left[s], s))
	}
	_, err := fmt.Fprintln(a.env.Stdout, strings.Join(parts, ", "))
	return err
}
