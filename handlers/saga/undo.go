package saga

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

var errUndoWaits = errors.New("an undo waits for the reports of what it asks for, and for nothing else")

// undo takes one step back after the other until one has to wait or nothing is left.
func (t *turn[T]) undo() error {
	for t.rec.Status == schema.SagaCompensating && t.kept.Wait == nil {
		if err := t.undoNext(); err != nil {
			if !t.givenUp(err) {
				return err
			}
			return t.stuck(reasonOf(err), nil)
		}
	}
	return nil
}

func (t *turn[T]) undoNext() error {
	s, err := t.step(t.kept.Undo[0])
	if err != nil {
		return err
	}
	if s.Undo == nil {
		return handlers.Permanent(fmt.Errorf("saga %s/%s needs the undo of step %q, which has none", t.rec.Saga, t.rec.ID, s.Name))
	}
	return t.do(s.Name, noWait(s.Undo), func(_ Result[T], calls []call) string {
		t.rec.Step = s.Name
		return t.settleUndo(&waiting{N: t.rec.Version + 1, Calls: calls})
	})
}

func noWait[T any](fn func(c *Context, state T) (Result[T], error)) func(c *Context, state T) (Result[T], error) {
	return func(c *Context, state T) (Result[T], error) {
		res, err := fn(c, state)
		if err == nil && res.Wait {
			err = handlers.Permanent(errUndoWaits)
		}
		return res, err
	}
}

// settleUndo says where the saga is after a function of an Undo, and returns the event's kind.
func (t *turn[T]) settleUndo(w *waiting) string {
	t.rec.Status = schema.SagaCompensating
	if len(w.Calls) > 0 {
		t.kept.Wait = w
		if len(w.Failed) > 0 {
			t.rec.Status = schema.SagaStuck
		}
		return kindUndoing
	}
	t.kept.Wait, t.kept.Undo, t.kept.Stuck = nil, t.kept.Undo[1:], 0
	if len(t.kept.Undo) == 0 {
		t.rec.Status = schema.SagaCompensated
	}
	return kindUndone
}

// undoReported takes the report of a call of an Undo that is open. A call that was given up makes the saga stuck; when
// its dead letter has been replayed it is reported again.
func (t *turn[T]) undoReported(out schema.Outcome) error {
	if !out.OK {
		w := *t.kept.Wait
		w.Failed = append(without(w.Failed, out.Ref), out.Ref)
		t.kept.Wait = &w
		reason := fmt.Sprintf("%s.%s was given up (%s): %s", out.Target, out.Action, out.Cause, out.Reason)
		if out.Cause == schema.CauseCancelled { // it has no dead letter
			return t.stuck(reason, nil)
		}
		return t.beStuck(reason)
	}
	err := t.tryUndoReported(out)
	switch {
	case err == nil:
		return t.undo()
	case t.givenUp(err):
		w := *t.kept.Wait
		w.Failed = append(without(w.Failed, out.Ref), out.Ref)
		t.kept.Wait = &w
		return t.stuck(reasonOf(err), &out)
	}
	return err
}

func (t *turn[T]) tryUndoReported(out schema.Outcome) error {
	s, err := t.step(t.rec.Step)
	if err != nil {
		return err
	}
	return t.do(s.Name, noWait(withReport(s.OnUndone, out)), func(_ Result[T], calls []call) string {
		w := *t.kept.Wait
		w.close(out.Ref)
		w.Calls = append(w.Calls, calls...)
		return t.settleUndo(&w)
	})
}

// stuck notes that a step cannot be taken back, and leaves a message that dies: its replay goes on from here.
func (t *turn[T]) stuck(reason string, report *schema.Outcome) error {
	args := resumeArgs{ID: t.rec.ID, Event: t.rec.Version + 1, Reason: reason, Report: report}
	if err := t.beStuck(reason); err != nil {
		return err
	}
	_, err := handlers.Publish(t.ctx, schema.NewJob(t.def.name, actionResume, args))
	return err
}

func (t *turn[T]) beStuck(reason string) error {
	step := t.rec.Step
	if t.kept.Wait == nil {
		step = t.kept.Undo[0]
	}
	t.rec.Step, t.rec.Status, t.kept.Stuck = step, schema.SagaStuck, t.rec.Version+1
	return t.save(step, kindStuck, reason, nil, nil)
}

// resume goes on with a saga that the event has made stuck, and returns the error that keeps it stuck.
func (t *turn[T]) resume(args resumeArgs) error {
	var err error
	switch w := t.kept.Wait; {
	case args.Report != nil && w != nil && slices.Contains(w.Failed, args.Report.Ref):
		err = t.tryUndoReported(*args.Report)
	case args.Report == nil && t.rec.Status == schema.SagaStuck && t.kept.Stuck == args.Event:
		t.kept.Wait = nil
		err = t.undoNext()
	default:
		return nil // somebody was quicker
	}
	if err != nil {
		return err
	}
	return t.undo()
}
