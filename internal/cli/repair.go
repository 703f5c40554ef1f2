package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/publishers/jetstream"
)

func (a *app) repairCommand() *cobra.Command {
	var opts jetstream.RepairOptions
	var ambiguous string
	var apply bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Put right what a restore or a lost stream has taken apart",
		Long: `Forwarding stops by itself when database and streams do not fit each other any more: after a restore
of either, after a stream was lost, or when a copy of the database runs. Repair looks, says what it
found and what it would do, and asks for the decisions that only a person can make. It changes nothing
without --apply. Exit code 3 if a repair is needed.

Rows that may or may not have been sent are listed. Resend is right where handlers use the inbox: a
message that comes twice is then handled once. Park sets them aside; see ` + "`millbridge poison list`" + `.`,
		Example: `  millbridge repair
  millbridge repair --ambiguous resend --apply
  millbridge repair --stream-recreated --ambiguous park --apply
  millbridge repair --as-clone --apply        # this copy lives on beside the original
  millbridge repair --forget 6b3e226037048aa9 # the database of that outbox is gone for good`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch opts.Ambiguous = jetstream.Ambiguous(ambiguous); opts.Ambiguous {
			case "", jetstream.Resend, jetstream.Park:
			default:
				return usagef("--ambiguous is resend or park")
			}
			if opts.Forget != "" && (opts.AsClone || opts.StreamRecreated || ambiguous != "") {
				return usagef("--forget goes alone")
			}
			return a.withBridge(cmd, func(ctx context.Context, o *opened) error {
				plan, err := o.repairer.Plan(ctx, opts)
				if err != nil {
					return err
				}
				return a.repair(ctx, o, plan, apply)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&apply, "apply", false, "do it")
	f.StringVar(&ambiguous, "ambiguous", "", "what to do with rows that may have been sent: `resend or park`")
	f.BoolVar(&opts.StreamRecreated, "stream-recreated", false, "a stream was deleted or emptied, and that is accepted")
	f.BoolVar(&opts.AsClone, "as-clone", false, "this database is a copy that lives on by itself: give it an outbox of its own")
	f.StringVar(&opts.Forget, "forget", "", "remove what is left of the outbox with this `id`")
	return cmd
}

// repaired is the plan for programs.
type repaired struct {
	Needed    bool        `json:"needed"`
	Applied   bool        `json:"applied"`
	Plan      []string    `json:"plan"`
	Undecided []string    `json:"undecided"`
	Rows      []unsureRow `json:"rows"`
}

type unsureRow struct {
	Stream   string    `json:"stream"`
	Shard    int       `json:"shard"`
	Sequence int64     `json:"sequence"`
	ID       string    `json:"id"`
	Subject  string    `json:"subject"`
	Since    time.Time `json:"since"`
	Where    string    `json:"where"` // outbox or scheduled
}

func (a *app) repair(ctx context.Context, o *opened, plan *jetstream.Plan, apply bool) error {
	needed := len(plan.Lines)+len(plan.Undecided) > 0
	var err error
	if apply && needed {
		err = o.repairer.Apply(ctx, plan)
	}
	if printErr := a.printPlan(plan, repaired{Needed: needed, Applied: apply && needed && err == nil}); printErr != nil {
		return printErr
	}
	switch {
	case errors.Is(err, jetstream.ErrUndecided):
		return withHint(err, "decide with --ambiguous, --stream-recreated or --as-clone, and run it again")
	case errors.Is(err, jetstream.ErrPlanChanged):
		return withHint(err, "`millbridge repair` looks again")
	case err != nil:
		return withHint(err, "what was done stays done; `millbridge repair` shows what is left")
	case needed && !apply:
		return wrongError{withHint(errors.New("a repair is needed"), "run it again with the decisions it asks for, and --apply")}
	}
	return nil
}

func (a *app) printPlan(plan *jetstream.Plan, sum repaired) error {
	if a.flags.json {
		sum.Plan, sum.Undecided, sum.Rows = append([]string{}, plan.Lines...), append([]string{}, plan.Undecided...), []unsureRow{}
		for _, r := range plan.Rows {
			where := ops.InOutbox
			if r.Scheduled {
				where = ops.InScheduled
			}
			sum.Rows = append(sum.Rows, unsureRow{string(r.Stream), r.Shard, r.Seq, r.ID, r.Subject, r.CreatedAt, where})
		}
		return object(a.env.Stdout, sum)
	}
	w, p := a.env.Stdout, a.paint()
	if !sum.Needed {
		_, err := fmt.Fprintln(w, "nothing to repair")
		return err
	}
	for _, line := range plan.Lines {
		fmt.Fprintln(w, escape(line))
	}
	if len(plan.Rows) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, r := range plan.Rows {
			seq := strconv.FormatInt(r.Seq, 10)
			if r.Scheduled {
				seq = "-"
			}
			rows = append(rows, []string{fmt.Sprintf("%s/%d", r.Stream, r.Shard), seq, r.ID, short(r.Subject, 60), stamp(r.CreatedAt)})
		}
		table(w, []string{"SHARD", "SEQUENCE", "ID", "SUBJECT", "SINCE"}, rows)
		fmt.Fprintln(w)
	}
	for _, q := range plan.Undecided {
		fmt.Fprintln(w, p.busy("to decide: ")+escape(q))
	}
	if sum.Applied {
		fmt.Fprintln(w, p.good("done"))
	}
	return nil
}
