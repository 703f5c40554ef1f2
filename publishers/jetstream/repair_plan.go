package jetstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// An AmbiguousRow may or may not have been sent.
type AmbiguousRow struct {
	schema.ShardRef
	Seq       int64
	ID        string // of the message
	Subject   string // without prefix
	CreatedAt time.Time
	Scheduled bool // it waits for its time, not in the outbox; Seq is its number there
}

// A Plan says what a repair found and would do.
type Plan struct {
	Options   RepairOptions
	Lines     []string       // found and to do, in order; empty if nothing needs a repair
	Undecided []string       // decisions that are needed first
	Rows      []AmbiguousRow // what Options.Ambiguous decides on

	steps  []step
	facts  []string                // what the steps follow from, and what they are about
	seen   map[schema.RowName]bool // the rows that were there
	had    map[schema.UUID]bool    // those that the stream had
	before *Plan                   // when it is carried out: the plan that was made first
}

// A step is one thing a plan does.
type step func(ctx context.Context) error

// do adds a step and the facts that it follows from. Counts that traffic changes are not among them.
func (p *Plan) do(s step, facts ...any) {
	p.steps = append(p.steps, s)
	p.facts = append(p.facts, fmt.Sprint(facts...))
}

func (p *Plan) say(format string, args ...any) {
	p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
}

func (p *Plan) ask(format string, args ...any) {
	p.Undecided = append(p.Undecided, fmt.Sprintf(format, args...))
}

// consider returns the rows that the plan is about. Those that come in between a plan and its carrying out are not: a
// stopped shard has not sent them, and producers do not wait for a repair.
func consider[R interface{ Name() schema.RowName }](p *Plan, rows []R) []R {
	if p.before != nil {
		rows = slices.DeleteFunc(rows, func(row R) bool { return !p.before.seen[row.Name()] })
	}
	for _, row := range rows {
		p.seen[row.Name()] = true
	}
	return rows
}

// remember adds to the rows that the stream has those that it had when the plan was made: their consumers do not wait
// for a repair either.
func (p *Plan) remember(held map[schema.UUID]bool, rows []schema.Row) map[schema.UUID]bool {
	all := make(map[schema.UUID]bool, len(held))
	for _, row := range rows {
		if held[row.ID] || p.before != nil && p.before.had[row.ID] {
			all[row.ID], p.had[row.ID] = true, true
		}
	}
	return all
}
