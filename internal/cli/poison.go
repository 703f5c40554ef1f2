package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

func (a *app) poisonCommand() *cobra.Command {
	return group("poison", "List, show, replay or drop messages that were given up",
		`Works on the messages that were given up: dead letters of handlers, and outbox rows that can never be
sent (parked). Both are in one list; the column AT says which of the two gave a message up.`,
		a.poisonList(), a.poisonShow(), a.poisonAct(ops.Replay), a.poisonAct(ops.Drop))
}

// poisonFlags select messages.
type poisonFlags struct {
	query        ops.PoisonQuery
	since, until string
}

func (p *poisonFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&p.query.Target, "target", "", "only of this target or subscription")
	f.StringVar(&p.query.Name, "name", "", "only of this action or event")
	f.StringVar(&p.query.Tenant, "tenant", "", "only of this tenant")
	f.StringVar(&p.query.Text, "error", "", "only with this text in the error, in any case")
	f.StringVar(&p.since, "since", "", "only given up since a `time` (2026-03-01T09:00:00Z), or in the last while (2h)")
	f.StringVar(&p.until, "until", "", "only given up before a `time`, or longer ago than a while")
}

func (p *poisonFlags) read(now time.Time) error {
	for _, t := range []struct {
		name, text string
		field      *time.Time
	}{{"--since", p.since, &p.query.Since}, {"--until", p.until, &p.query.Until}} {
		if t.text == "" {
			continue
		}
		at, err := parseTime(t.text, now)
		if err != nil {
			return usagef("%s: %v", t.name, err)
		}
		*t.field = at
	}
	return nil
}

// narrow reports whether any flag narrows the selection.
func (p *poisonFlags) narrow() bool { return p.query != ops.PoisonQuery{Limit: p.query.Limit} }

func (a *app) poisonList() *cobra.Command {
	var flags poisonFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that were given up, oldest first",
		Long:  "Lists messages that were given up, oldest first, a page at a time: --after continues where the page before ended.",
		Example: `  millbridge poison list
  millbridge poison list --target crm --since 2h
  millbridge poison list --error timeout --json | jq -r .id`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.read(a.env.Now()); err != nil {
				return err
			}
			if flags.query.Limit < 1 || flags.query.Limit > 10000 {
				return usagef("--limit must be between 1 and 10000")
			}
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				items, next, err := o.ops.Poison(ctx, flags.query)
				if err != nil {
					return err
				}
				return a.printPoison(items, next)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&flags.query.After, "after", "", "continue behind this page")
	cmd.Flags().IntVar(&flags.query.Limit, "limit", 100, "at most this many")
	return cmd
}

func (a *app) printPoison(items []ops.PoisonItem, next string) error {
	if a.flags.json {
		for _, item := range items {
			item.Error = a.redact(item.Error)
			if err := object(a.env.Stdout, item); err != nil {
				return err
			}
		}
		if next != "" { // standard output holds items only
			fmt.Fprintln(a.env.Stderr, "more: --after "+next)
		}
		return nil
	}
	if len(items) == 0 && next == "" {
		_, err := fmt.Fprintln(a.env.Stdout, "nothing was given up")
		return err
	}
	var rows [][]string
	for _, i := range items {
		rows = append(rows, []string{
			i.At, i.ID, i.Target, i.Name, i.Cause, strconv.Itoa(i.Attempts), strconv.Itoa(i.Replay), stamp(i.Time), short(a.redact(i.Error), 80),
		})
	}
	table(a.env.Stdout, []string{"AT", "ID", "FOR", "NAME", "CAUSE", "TRIES", "REPLAYS", "SINCE", "ERROR"}, rows)
	if next != "" {
		_, err := fmt.Fprintf(a.env.Stdout, "there may be more: --after %s\n", next)
		return err
	}
	return nil
}

func (a *app) poisonShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show <id>",
		Short: "Show a message that was given up: error, stack, headers and whole payload",
		Example: `  millbridge poison show 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f
  millbridge poison show 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f --json | jq -r .message.payload`,
		Args: needArgs(1, 1, "the id of a message"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				items, err := o.ops.PoisonShow(ctx, args[0])
				if err != nil {
					return err
				}
				for i, item := range items {
					item.Error, item.Stack = a.redact(item.Error), a.redact(item.Stack)
					if a.flags.json {
						if err := object(a.env.Stdout, item); err != nil {
							return err
						}
						continue
					}
					if i > 0 {
						fmt.Fprintln(a.env.Stdout)
					}
					a.printItem(item)
				}
				return nil
			})
		},
	}
}

func (a *app) printItem(i ops.PoisonItem) {
	w, p := a.env.Stdout, a.paint()
	fmt.Fprintf(w, "%-13s %s\n", "given up", p.bold(escape(stamp(i.Time)+" at the "+i.At+" for "+i.Target)))
	fmt.Fprintf(w, "%-13s %s\n", "cause", escape(i.Cause))
	fmt.Fprintf(w, "%-13s %s\n", "error", p.bad(escape(i.Error)))
	if i.At == ops.AtHandler {
		fmt.Fprintf(w, "%-13s %s, %d deliveries, replayed %d times before\n", "attempts", count(i.Attempts, "attempt"), i.Deliveries, i.Replay)
	}
	if i.Message != nil {
		printMessage(w, *i.Message)
	}
	if i.Stack != "" {
		fmt.Fprintf(w, "stack\n%s\n", indent(escapeLines(i.Stack), "    "))
	}
}

func (a *app) poisonAct(action ops.Action) *cobra.Command {
	var flags poisonFlags
	var all, dryRun, yes bool
	var rate int
	short, long, example := replayTexts()
	if action == ops.Drop {
		short, long, example = dropTexts()
	}
	cmd := &cobra.Command{
		Use: string(action) + " [id...]", Short: short, Long: long, Example: example,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := flags.read(a.env.Now()); err != nil {
				return err
			}
			switch {
			case all && len(ids) > 0, all && flags.narrow(), len(ids) > 0 && flags.narrow() && flags.query != (ops.PoisonQuery{Target: flags.query.Target}):
				return usagef("select by id, by flags or with --all, not in several ways")
			case !all && len(ids) == 0 && !flags.narrow():
				return usagef("select messages: ids, flags such as --target, or --all")
			case rate < 1 || rate > 10000:
				return usagef("--rate must be between 1 and 10000")
			}
			order := ops.Order{Action: action, Query: flags.query, IDs: ids, DryRun: true, Rate: rate}
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				if dryRun {
					return a.act(ctx, o, order)
				}
				if len(ids) != 1 || action == ops.Drop {
					found, err := o.ops.Act(ctx, order, func(ops.PoisonItem, error) {})
					if err != nil {
						return err
					}
					if err := a.confirm(action, found.Selected, yes); err != nil {
						return err
					}
				}
				order.DryRun = false
				return a.act(ctx, o, order)
			})
		},
	}
	flags.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "everything that was given up")
	f.BoolVar(&dryRun, "dry-run", false, "only show what would be done")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.IntVar(&rate, "rate", 50, "at most this many a second")
	return cmd
}

func replayTexts() (short, long, example string) {
	return "Put messages back that were given up",
		`Puts messages back: a dead letter goes to the one handler that gave it up, with the same idempotency
key and a fresh budget of attempts; a parked row goes back into the outbox together with those that
wait behind it. Several messages need --yes when nobody can be asked.

The rate is bounded, and the command can be stopped and run again: it goes on where it stopped. Two
operators may do it at once: each message is put back once.`,
		`  millbridge poison replay 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f
  millbridge poison replay --target crm --error "connection refused" --dry-run
  millbridge poison replay --all --rate 10 --yes`
}

func dropTexts() (short, long, example string) {
	return "Give messages up for good",
		`Drops messages for good: only a mark stays that they were there. Parked rows that waited behind a
dropped one go back into the outbox. Without a terminal it needs --yes.`,
		`  millbridge poison drop 01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f
  millbridge poison drop --target crm --until 30d --dry-run`
}

// confirm asks before several messages are touched, or any is dropped.
func (a *app) confirm(action ops.Action, n int, yes bool) error {
	switch {
	case yes || n == 0 || n == 1 && (action == ops.Replay || !a.env.InTerminal):
		return nil
	case !a.env.InTerminal:
		return usagef("%s %d messages: nobody can be asked here; repeat with --yes", action, n)
	}
	return a.ask(fmt.Sprintf("%s %s", action, count(n, "message")))
}

// ask waits for the person at the terminal to agree.
func (a *app) ask(to string) error {
	fmt.Fprintf(a.env.Stderr, "%s? [y/N] ", escape(to))
	var answer string
	if _, err := fmt.Fscanln(a.env.Stdin, &answer); err != nil || !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return withHint(fmt.Errorf("nothing was done"), "answer y, or give --yes")
	}
	return nil
}

// acted is one line of the output of an order for programs.
type acted struct {
	Action ops.Action `json:"action"`
	Result string     `json:"result"` // selected, done, already or failed
	At     string     `json:"at"`
	ID     string     `json:"id"`
	Target string     `json:"target"`
	Error  string     `json:"error,omitempty"`
}

func (a *app) act(ctx context.Context, o *opened, order ops.Order) error {
	done := map[ops.Action]string{ops.Replay: "replayed", ops.Drop: "dropped"}[order.Action]
	out, err := o.ops.Act(ctx, order, func(item ops.PoisonItem, err error) {
		line := acted{order.Action, "done", item.At, item.ID, item.Target, ""}
		said := done
		switch {
		case order.DryRun:
			line.Result, said = "selected", "would be "+done
		case err != nil:
			said = "failed"
			if errors.Is(err, schema.ErrAlreadyReplayed) {
				said = "already"
			}
			line.Result, line.Error = said, a.redact(schema.OneLine(err.Error()))
		}
		if a.flags.json {
			object(a.env.Stdout, line) //nolint:errcheck // the next write fails too
			return
		}
		text := fmt.Sprintf("%-16s %s for %s", said, line.ID, line.Target)
		if line.Error != "" {
			text += ": " + line.Error
		}
		fmt.Fprintln(a.env.Stdout, escape(text))
	})
	if !a.flags.json {
		a.printOutcome(order, done, out)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return withHint(fmt.Errorf("stopped after %s: %w", count(out.Done, "message"), ctx.Err()), "run the same command again; it goes on where it stopped")
	case err != nil:
		return err
	case out.Failed > 0:
		return withHint(fmt.Errorf("%d of %d messages failed", out.Failed, out.Selected), "see the lines above; run the same command again for those")
	case out.Already > 0 && out.Done == 0 && (order.Query.ID != "" || len(order.IDs) > 0): // all of a selection are as they should be
		return withHint(fmt.Errorf("already replayed or dropped by somebody else"), "`millbridge show <id>` tells what became of a message")
	}
	return nil
}

func (a *app) printOutcome(order ops.Order, done string, out ops.Outcome) {
	if order.DryRun {
		fmt.Fprintf(a.env.Stdout, "%s would be %s\n", count(out.Selected, "message"), done)
		return
	}
	fmt.Fprintf(a.env.Stdout, "%s %s", count(out.Done, "message"), done)
	if out.Already > 0 {
		fmt.Fprintf(a.env.Stdout, ", %d by somebody else before", out.Already)
	}
	if out.Failed > 0 {
		fmt.Fprintf(a.env.Stdout, ", %d failed", out.Failed)
	}
	fmt.Fprintln(a.env.Stdout)
}
