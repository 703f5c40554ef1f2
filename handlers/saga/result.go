package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A Result is what a step decides. The coordinator commits all of it together.
type Result[T any] struct {
	State     T        // the whole state after the step, never its zero value
	Intents   []Intent // what others are to do; may be none
	Rationale string   // why, for the ledger
	// Wait keeps the step waiting although nothing that it asked for may be open: until its time-out, or, from OnTimeout,
	// for what is still open.
	Wait bool
}

// Next returns a result: the state after the step, why, and what others are to do.
func Next[T any](state T, rationale string, intents ...Intent) Result[T] {
	return Result[T]{State: state, Rationale: rationale, Intents: intents}
}

// An Intent is a job for a target, published when the step commits.
type Intent struct {
	Target string
	Action string
	Args   any    // encoded as JSON; nil means no arguments
	Key    string // idempotency key; empty means [Context.NewKey]
	// OrderingKey keeps the jobs that share it in order at an ordered target; empty means the saga, so that the job that
	// takes something back does not overtake the one that does it.
	OrderingKey string
	Delay       time.Duration // not before so long after the commit
	// Call asks for a report: the step waits until the job has succeeded or was given up.
	Call bool
}

// Tell returns the intent that a job is done some time; the saga does not wait for it.
func Tell[A any](t schema.JobType[A], args A) Intent {
	return Intent{Target: t.Target, Action: t.Action, Args: args}
}

// Ask returns the intent that a job is done and reported back. Its handler may answer with [handlers.Report].
func Ask[A any](t schema.JobType[A], args A) Intent {
	return Intent{Target: t.Target, Action: t.Action, Args: args, Call: true}
}

// Answer decodes what the handler of an asked job has answered. An answer that does not fit A is a permanent error.
func Answer[A any](report schema.Outcome) (A, error) {
	var a A
	if err := json.Unmarshal(report.Result, &a); err != nil {
		return a, handlers.Permanent(fmt.Errorf("answer of %s.%s: %w", report.Target, report.Action, err))
	}
	return a, nil
}

type failure struct{ reason string }

func (f *failure) Error() string { return f.reason }

// Fail returns the error that fails the saga for a reason of its own: it is not tried again, and what was done so far is
// taken back.
func Fail(reason string) error { return handlers.Permanent(&failure{reason}) }

// reasonOf renders an error for the ledger.
func reasonOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return schema.OneLine(f.reason)
	}
	return schema.Reason(err)
}
