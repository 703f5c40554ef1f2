package handlers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// fragile panics in one of its methods, if it is a nil pointer.
type fragile struct{ cause error }

func (f *fragile) Error() string { return "fragile" }
func (f *fragile) Unwrap() error { return f.cause }

// picky panics when it is asked whether it is another error.
type picky struct{}

func (picky) Error() string   { return "picky" }
func (picky) Is(e error) bool { panic("is it " + e.Error()) }

func TestRecover_returns_errors_that_can_be_read(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    func() error
		want string
	}{
		"a panic":                   {func() error { panic("oops") }, "panic: oops"},
		"a nil pointer":             {func() error { return (*schema.ValidationError)(nil) }, "panic: the error, a *schema.ValidationError, cannot be read: runtime error"},
		"one that unwraps badly":    {func() error { return (*fragile)(nil) }, "panic: the error, a *handlers.fragile, cannot be read: runtime error"},
		"one that compares badly":   {func() error { return picky{} }, "panic: the error, a handlers.picky, cannot be read: is it "},
		"one inside":                {func() error { return fmt.Errorf("x: %w", (*fragile)(nil)) }, "panic: the error, a *fmt.wrapError, cannot be read: runtime error"},
		"one inside, marked":        {func() error { return Permanent((*fragile)(nil)) }, "panic: the error, a *schema.kindError, cannot be read: runtime error"},
		"one that is joined":        {func() error { return errors.Join(errors.New("x"), (*fragile)(nil)) }, "panic: the error, a *errors.joinError, cannot be read: runtime error"},
		"a panic with a nil error":  {func() error { panic((*fragile)(nil)) }, "panic: panic: the error, a *handlers.fragile, cannot be read: runtime error"},
		"a panic with a good error": {func() error { panic(&fragile{errors.New("x")}) }, "panic: fragile"},
	} {
		err := Recover(c.f)
		var panicked *PanicError
		if !errors.As(err, &panicked) || len(panicked.Stack) == 0 || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q with its stack", name, err, c.want)
		}
		if d := Decide(schema.RetryPolicy{MaxAttempts: 1}, 1, "id", err); d.Cause != schema.CauseExhausted || !strings.Contains(schema.Reason(err), c.want) {
			t.Errorf("%s: %+v, reason %q", name, d, schema.Reason(err))
		}
	}
}

func TestRecover_leaves_other_errors_alone(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("x"), Permanent(&fragile{errors.New("x")})} {
		if err := Recover(func() error { return want }); err != want {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}
