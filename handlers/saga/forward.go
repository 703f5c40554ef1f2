package saga

import (
	"fmt"
	"slices"

	"github.com/millbridge/millbridge/schema"
)

// proceed takes one step after the other until one has to wait or the saga is over.
func (t *turn[T]) proceed() error {
	for t.rec.Status == schema.SagaRunning {
		s, ok := t.following(t.rec.Step)
		if !ok {
			return nil
		}
		err := t.do(s.Name, s.Do, func(res Result[T], calls []call) string {
			t.rec.Step = s.Name
			w := &waiting{
				N: t.rec.Version + 1, Calls: calls, Signal: s.Await, Timer: res.Wait,
				Effect: len(res.Intents) > len(calls),
			}
			return t.settle(s.Name, w, kindWaiting)
		})
		if err == nil {
			err = t.takeEarly(s)
		} else if t.givenUp(err) {
			return t.fail(s.Name, reasonOf(err), false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle says where the saga is after a step's function, and returns the event's kind: kind if the step waits.
func (t *turn[T]) settle(step string, w *waiting, kind string) string {
	if w.open() {
		t.kept.Wait, t.rec.Status = w, schema.SagaWaiting
		return kind
	}
	t.kept.Wait, t.rec.Status = nil, schema.SagaRunning
	t.kept.Done = append(slices.Clone(t.kept.Done), step)
	if _, more := t.following(step); !more {
		t.kept.Early, t.rec.Status = nil, schema.SagaDone
	}
	return kindDone
}

// wait calls a function of the step that waits and goes on when the step has nothing to wait for any more. closed takes
// off what has come in. An error that concerns fails says is the saga's end; maybe tells whether the step must be undone
// then.
func (t *turn[T]) wait(fn func(c *Context, state T) (Result[T], error), kind string, closed func(w *waiting, res Result[T]), fails func(error) bool) error {
	s, err := t.step(t.rec.Step)
	if err != nil {
		return err
	}
	after := func(res Result[T], calls []call) *waiting {
		w := *t.kept.Wait
		w.Calls, w.Timer = slices.Clone(w.Calls), res.Wait
		closed(&w, res)
		w.Calls = append(w.Calls, calls...)
		w.Effect = w.Effect || len(res.Intents) > len(calls)
		if len(calls) > 0 || res.Wait {
			w.N = t.rec.Version + 1
		}
		return &w
	}
	err = t.do(s.Name, fn, func(res Result[T], calls []call) string { return t.settle(s.Name, after(res, calls), kind) })
	switch {
	case err == nil:
		return t.proceed()
	case fails(err):
		w := after(Result[T]{}, nil)
		return t.fail(s.Name, reasonOf(err), w.maybeDone())
	}
	return err
}

// reported takes the report of a call that is open.
func (t *turn[T]) reported(out schema.Outcome) error {
	s, err := t.step(t.rec.Step)
	if err != nil {
		return err
	}
	fn := s.OnReport
	if !out.OK {
		fn = s.OnFailed
		if fn == nil {
			w := *t.kept.Wait
			w.close(out.Ref)
			return t.fail(s.Name, fmt.Sprintf("%s.%s was given up (%s): %s", out.Target, out.Action, out.Cause, out.Reason), w.maybeDone())
		}
	}
	return t.wait(withReport(fn, out), kindReported, func(w *waiting, _ Result[T]) {
		w.close(out.Ref)
		w.Effect = w.Effect || out.OK
	}, t.givenUp)
}

// withReport binds a report to a function that takes one; nil leaves the state as it is.
func withReport[T any](fn func(c *Context, state T, out schema.Outcome) (Result[T], error), out schema.Outcome) func(*Context, T) (Result[T], error) {
	return func(c *Context, state T) (Result[T], error) {
		if fn == nil {
			return Next(state, out.Target+"."+out.Action+" has succeeded"), nil
		}
		return fn(c, state, out)
	}
}

// timedOut ends the waiting of a step.
func (t *turn[T]) timedOut() error {
	s, err := t.step(t.rec.Step)
	if err != nil {
		return err
	}
	if s.OnTimeout == nil {
		return t.fail(s.Name, fmt.Sprintf("no answer within %v", s.Timeout), t.kept.Wait.maybeDone())
	}
	return t.wait(s.OnTimeout, kindTimedOut, func(w *waiting, res Result[T]) {
		if !res.Wait {
			w.Effect = w.maybeDone()
			w.Calls, w.Signal = nil, ""
		}
	}, t.givenUp)
}

// fail begins to take back what was done. maybe tells that the step itself may have had an effect too.
func (t *turn[T]) fail(step, reason string, maybe bool) error {
	var undo []string
	names := slices.Clone(t.kept.Done)
	if maybe {
		names = append(names, step)
	}
	for _, name := range slices.Backward(names) {
		s, err := t.step(name)
		if err != nil {
			return err
		}
		if s.Undo != nil {
			undo = append(undo, name)
		}
	}
	t.kept.Undo, t.kept.Wait, t.kept.Early, t.kept.Why = undo, nil, nil, reason
	t.rec.Step, t.rec.Status = step, schema.SagaCompensating
	if len(undo) == 0 {
		t.rec.Status = schema.SagaCompensated
	}
	if err := t.save(step, kindFailed, reason, nil, nil); err != nil {
		return err
	}
	return t.undo()
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}
