package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var orders int
	var seed uint64
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a small shop: everything Millbridge does, in a few seconds",
		Long: `Runs a small shop on the embedded default. It commits orders together with jobs and events, some
orders are rolled back; the messages are forwarded and handled by several targets: one works in the
database transaction, one is flaky and recovers, one is a real HTTP webhook, one is broken and ends
in the poison queue, from where a message is replayed. At the end everything is read back and added
up. Nothing is installed and nothing is left behind, unless --keep or --data-dir is given.

Exit code 0 only if nothing was lost and nothing doubled.`,
		Example: `  millbridge demo
  millbridge demo --orders 2000 --seed 7
  millbridge demo --keep           # then explore what it left with the other commands`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if orders < 1 || orders > 1_000_000 {
				return usagef("--orders must be between 1 and 1000000")
			}
			c, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			dir := c.DataDir
			if c.Origin("data_dir") == "default" {
				if dir, err = os.MkdirTemp("", "millbridge-demo-"); err != nil {
					return fmt.Errorf("make a directory for the demo: %w", err)
				}
				if !keep {
					defer os.RemoveAll(dir)
				}
			} else {
				keep = true
			}
			if _, err := os.Stat(filepath.Join(dir, "millbridge.db")); err == nil {
				return withHint(fmt.Errorf("%s is in use already", dir), "name an empty directory with --data-dir, or none")
			}
			return a.demo(cmd, demo.Config{Dir: dir, Orders: orders, Seed: seed, Logger: a.quietLogger(c)}, keep)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&orders, "orders", 10, "how many orders the shop gets")
	f.Uint64Var(&seed, "seed", 1, "the same seed gives the same orders")
	f.BoolVar(&keep, "keep", false, "leave the data directory and say how to explore it")
	return cmd
}

func (a *app) demo(cmd *cobra.Command, cfg demo.Config, keep bool) error {
	w, p := a.env.Stdout, a.paint()
	if !a.flags.json {
		fmt.Fprintf(w, "%s on the embedded default: SQLite and a NATS server in this process, data in %s\n\n", p.bold("A small shop"), escape(cfg.Dir))
	}
	cfg.Tell = a.printLine
	report, err := demo.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if a.flags.json {
		if err := object(w, report); err != nil {
			return err
		}
	} else {
		a.printReport(report)
		if keep {
			fmt.Fprintf(w, "\nThe data is still there. Explore it:\n")
			for _, c := range []string{"status --tally", "poison list", "poison show <id>", "poison replay --target archive --yes", "outbox list"} {
				fmt.Fprintf(w, "  millbridge %s --data-dir %s\n", c, escape(cfg.Dir))
			}
		}
	}
	if !report.OK() {
		return wrongError{withHint(fmt.Errorf("the demo does not add up"), "run it again with --keep and the same --seed, and look with `millbridge status --tally`")}
	}
	return nil
}

func (a *app) printLine(l demo.Line) {
	w, p := a.env.Stdout, a.paint()
	if a.flags.json {
		object(w, l) //nolint:errcheck // the report's write fails too
		return
	}
	if l.Mood == demo.Say {
		fmt.Fprintf(w, "%s\n", p.bold(escape(l.Text)))
		return
	}
	mark := map[demo.Mood]string{
		demo.Sold: p.good("+"), demo.Undo: p.faint("-"), demo.Done: p.good("✓"), demo.Again: p.busy("↻"), demo.Dead: p.bad("✗"),
	}[l.Mood]
	text := escape(l.Text)
	switch l.Mood {
	case demo.Undo:
		text = p.faint(text)
	case demo.Dead:
		text = p.bad(text)
	}
	fmt.Fprintf(w, "%s %s  %-8s  %4d  %s\n", p.faint(fmt.Sprintf("%5.2fs", l.At.Seconds())), mark, escape(l.Who), l.Order, text)
}

func (a *app) printReport(r demo.Report) {
	w, p := a.env.Stdout, a.paint()
	fmt.Fprintf(w, "\n%s, read back\n", p.bold("The shop"))
	fmt.Fprintf(w, "%s tried, %d rolled back: %d in the books, %d paid, %s booked, %s seen by the subscriber\n",
		count(r.Tried, "order"), r.RolledBack, r.Books.Orders, r.Books.Payments, count(r.Parcels, "parcel"), count(int(r.Events), "event"))
	fmt.Fprintf(w, "\n%s, read back from ledger, outbox, inbox and streams\n", p.bold("The bridge"))
	a.printTally(w, r.Tally)
}
