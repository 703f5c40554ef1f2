package saga

import (
	"errors"
	"slices"

	"github.com/millbridge/millbridge/handlers"
)

// signal takes a signal while the saga waits: for the step that waits for it, for a later one, or for any.
func (t *turn[T]) signal(sig signalArgs) error {
	if t.kept.Wait.Signal == sig.Name {
		return t.take(sig, isFailure)
	}
	awaited := false
	here := t.def.index(t.rec.Step)
	for i, s := range t.def.steps {
		if s.Await != sig.Name {
			continue
		}
		awaited = true
		if i > here && !slices.Contains(t.kept.Done, s.Name) {
			t.kept.Early = append(slices.Clone(t.kept.Early), sig)
			return t.save(t.rec.Step, kindSignal, "signal "+sig.Name+": kept for step "+s.Name, nil, nil)
		}
	}
	if awaited {
		return t.ignore("signal " + sig.Name)
	}
	return t.wait(func(c *Context, state T) (Result[T], error) {
		res, err := t.def.signals[sig.Name](c, state, sig.Args)
		if err == nil && (res.Wait || slices.ContainsFunc(res.Intents, func(in Intent) bool { return in.Call })) {
			err = handlers.Permanent(errors.New("a signal that no step awaits can neither ask nor wait"))
		}
		return res, err
	}, kindSignal, func(w *waiting, _ Result[T]) { w.Timer = t.kept.Wait.Timer }, isFailure)
}

// take gives the step the signal that it awaits.
func (t *turn[T]) take(sig signalArgs, fails func(error) bool) error {
	return t.wait(func(c *Context, state T) (Result[T], error) {
		res, err := t.def.signals[sig.Name](c, state, sig.Args)
		if err == nil && res.Rationale == "" {
			res.Rationale = "signal " + sig.Name
		}
		return res, err
	}, kindSignal, func(w *waiting, _ Result[T]) { w.Signal = "" }, fails)
}

// takeEarly gives a step that has just begun to wait the signal that was kept for it. Its message is gone, so an error
// concerns the saga.
func (t *turn[T]) takeEarly(s Step[T]) error {
	if t.kept.Wait == nil || s.Await == "" || t.kept.Wait.Signal != s.Await {
		return nil
	}
	i := slices.IndexFunc(t.kept.Early, func(sig signalArgs) bool { return sig.Name == s.Await })
	if i < 0 {
		return nil
	}
	sig := t.kept.Early[i]
	t.kept.Early = slices.Delete(slices.Clone(t.kept.Early), i, i+1)
	return t.take(sig, t.givenUp)
}

// isFailure reports whether a signal's error is meant for the saga.
func isFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}
