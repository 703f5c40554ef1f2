package router

import (
	"context"
	"errors"
	"testing"
	"time"
)

type lazyKey struct{}

// Nothing of a context is missing because it is made late: its end and the cause, its deadline, its values, and its end for
// those that are derived from it.
func TestLazyContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("enough")
	parent, end := context.WithCancel(context.WithValue(t.Context(), lazyKey{}, "theirs"))
	defer end()
	run := &lazyContext{parent: parent, key: runKey{}, val: "mine"}
	if run.Err() != nil || run.Value(runKey{}) != "mine" || run.Value(lazyKey{}) != "theirs" {
		t.Errorf("error %v, values %v and %v", run.Err(), run.Value(runKey{}), run.Value(lazyKey{}))
	}
	attempt := &lazyContext{parent: run, deadline: time.Now().Add(time.Hour), cause: errTimeout}
	if at, ok := attempt.Deadline(); !ok || !at.Equal(attempt.deadline) {
		t.Errorf("the deadline is %v, %v", at, ok)
	}
	derived, stop := context.WithCancel(attempt)
	defer stop()
	if attempt.Value(runKey{}) != "mine" || derived.Value(lazyKey{}) != "theirs" {
		t.Error("a context that is made has lost its values")
	}
	run.cancel(cause)
	run.cancel(nil)
	for name, ctx := range map[string]context.Context{"run": run, "attempt": attempt, "derived": derived} {
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) || context.Cause(ctx) != cause {
			t.Errorf("%s: error %v, cause %v", name, ctx.Err(), context.Cause(ctx))
		}
	}

	late := &lazyContext{parent: parent, deadline: time.Now().Add(-time.Second), cause: errTimeout}
	if err := late.Err(); !errors.Is(err, context.DeadlineExceeded) || context.Cause(late) != errTimeout {
		t.Errorf("after the deadline: error %v, cause %v", err, context.Cause(late))
	}
	done := &lazyContext{parent: parent}
	done.cancel(nil)
	if !errors.Is(done.Err(), context.Canceled) {
		t.Errorf("after its end: %v", done.Err())
	}
	orphan := &lazyContext{parent: parent}
	end()
	if !errors.Is(orphan.Err(), context.Canceled) {
		t.Errorf("after its parent's end: %v", orphan.Err())
	}
}
