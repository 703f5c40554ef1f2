package saga

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestAttempts_are_used_up_before_a_step_is_given_up(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    func(*Context, order) (Result[order], error)
		fails bool
	}{
		"error":             {fails(errNot), true},
		"error that panics": {fails((*schema.ValidationError)(nil)), true},
		"panic":             {func(*Context, order) (Result[order], error) { panic("oh") }, true},
		"panic with a mark": {func(*Context, order) (Result[order], error) { panic(schema.ErrRetryTransaction) }, true},
		"lost transaction":  {fails(fmt.Errorf("x: %w", schema.ErrRetryTransaction)), false},
		"database away":     {fails(fmt.Errorf("x: %w", schema.ErrUnavailable)), false},
		"snooze":            {fails(schema.Snooze(errNot, time.Minute)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Step[order]{Name: "one", Do: tells("a"), Undo: tells("undo-a")}, Step[order]{Name: "two", Do: c.do})
			run := func(attempt int) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("%v", v)
						b.memory = &memory{sagas: map[string]schema.SagaRecord{}}
					}
				}()
				return b.run(b.def.Start("o-1", order{Name: "x"}), handlers.Call{Attempt: attempt, MaxAttempts: 3})
			}
			for attempt := 1; attempt < 3; attempt++ {
				if err := run(attempt); err == nil {
					t.Fatalf("attempt %d: no error", attempt)
				}
				if len(b.events) > 0 || len(b.jobs) > 0 {
					t.Fatalf("attempt %d left events %q and %d jobs", attempt, b.kinds(), len(b.jobs))
				}
			}
			err := run(3)
			if !c.fails {
				if err == nil || len(b.events) > 0 {
					t.Errorf("the last attempt: %v, events %q", err, b.kinds())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b.want(schema.SagaCompensated, " started", "one done", "two failed", "one undone")
		})
	}
}

func TestStep_that_fails_leaves_nothing_but_its_failure(t *testing.T) {
	t.Parallel()
	var b *bench
	b = newBench(t, Step[order]{Name: "one", Do: func(*Context, order) (Result[order], error) {
		b.jobs = append(b.jobs, schema.NewJob("work", "half", nil)) // as if it had written something itself
		return Result[order]{}, Fail("no")
	}})
	b.start()
	b.want(schema.SagaCompensated, " started", "one failed")
	if len(b.jobs) != 0 || b.rationale() != "no" {
		t.Errorf("%d jobs, rationale %q", len(b.jobs), b.rationale())
	}
}

func TestOnFailed_may_ask_somebody_else(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: asks("first"), OnFailed: func(_ *Context, o order, r schema.Outcome) (Result[order], error) {
		if r.Action == "second" {
			return Result[order]{}, Fail("nobody has it")
		}
		return Next(o.with(r.Reason), "ask the next one", Ask(work("second"), nil)), nil
	}, Undo: tells("undo-one")})
	b.start()
	b.must(report(b.take("first"), false))
	second := b.take("second")
	b.want(schema.SagaWaiting, " started", "one waiting", "one reported")
	again := b.copy()
	b.must(report(second, true))
	b.want(schema.SagaDone, " started", "one waiting", "one reported", "one done")

	*b.memory = *again
	b.must(report(second, false))
	b.want(schema.SagaCompensated, " started", "one waiting", "one reported", "one failed") // neither had an effect
	if b.rationale() != "nobody has it" {
		t.Errorf("rationale %q", b.rationale())
	}
}

func TestStep_with_several_calls_waits_for_all(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: func(_ *Context, o order) (Result[order], error) {
		return Next(o, "", Ask(work("a"), nil), Ask(work("b"), nil)), nil
	}, Undo: tells("undo-one")})
	b.start()
	first, second := b.take("a"), b.take("b")
	b.must(report(second, true))
	b.want(schema.SagaWaiting, " started", "one waiting", "one reported")
	again := b.copy()
	b.must(report(first, true))
	b.want(schema.SagaDone, " started", "one waiting", "one reported", "one done")

	*b.memory = *again
	b.must(report(first, false)) // the other one must be taken back
	b.want(schema.SagaCompensated, " started", "one waiting", "one reported", "one failed", "one undone")
}

func TestReports_that_are_late_or_double_are_noted_and_change_nothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: asks("a"), Timeout: time.Hour}, Step[order]{Name: "two", Do: asks("b")})
	b.start()
	a, timeout := b.take("a"), b.take("timeout")
	b.must(report(a, true))
	b.must(report(a, true))
	b.must(timeout)
	b.want(schema.SagaWaiting, " started", "one waiting", "one done", "two waiting", "two ignored")
	bb := b.take("b")
	b.must(report(bb, false))
	b.must(report(bb, true))
	b.want(schema.SagaCompensated, " started", "one waiting", "one done", "two waiting", "two ignored", "two failed", "two ignored")
	if got := b.rationale(); got != "report of work.b (ok: true): the saga is compensated" {
		t.Errorf("rationale %q", got)
	}
	for _, ref := range []string{"", "o-1", "o-2/1.0"} {
		err := b.run(schema.NewJob("order", "report", schema.Outcome{Ref: ref}), handlers.Call{})
		if schema.KindOf(err) != schema.Permanent {
			t.Errorf("a report with ref %q: %v", ref, err)
		}
	}
}

func TestUndo_that_is_given_up_leaves_the_saga_stuck_until_a_replay(t *testing.T) {
	t.Parallel()
	broken := true
	b := newBench(
		t,
		Step[order]{Name: "one", Do: tells("a"), Undo: tells("undo-a")},
		Step[order]{Name: "two", Do: tells("b"), Undo: func(c *Context, o order) (Result[order], error) {
			if broken {
				return Result[order]{}, handlers.Permanent(errNot)
			}
			return Next(o, "because "+c.Reason, Tell(work("undo-b"), nil)), nil
		}},
		Step[order]{Name: "three", Do: fails(Fail("sold out"))},
	)
	b.start()
	b.want(schema.SagaStuck, " started", "one done", "two done", "three failed", "two stuck")
	letter := b.take("resume")
	err := b.run(letter, handlers.Call{})
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "not now") {
		t.Fatalf("the message of a saga that is stuck: %v", err)
	}
	if err := b.run(letter, handlers.Call{Replay: 1}); schema.KindOf(err) != schema.Permanent {
		t.Fatalf("a replay while it is still broken: %v", err)
	}
	broken = false
	for range 2 { // the second finds nothing to do
		if err := b.run(letter, handlers.Call{Replay: 2}); err != nil {
			t.Fatal(err)
		}
	}
	b.want(schema.SagaCompensated, " started", "one done", "two done", "three failed", "two stuck", "two undone", "one undone")
	if got := b.events[5].Rationale; got != "because sold out" {
		t.Errorf("rationale %q", got)
	}
}

func TestUndo_whose_call_is_given_up_goes_on_when_that_is_replayed(t *testing.T) {
	t.Parallel()
	b := newBench(
		t,
		Step[order]{Name: "one", Do: tells("a"), Undo: asks("undo-a")},
		Step[order]{Name: "two", Do: fails(Fail("sold out"))},
	)
	b.start()
	undo := b.take("undo-a")
	start := b.copy()
	b.must(report(undo, false))
	b.want(schema.SagaStuck, " started", "one done", "two failed", "one undoing", "one stuck")
	if slices.ContainsFunc(b.jobs, func(e schema.Envelope) bool { return e.Name == "resume" }) {
		t.Error("there are two dead letters for one thing to do")
	}
	b.must(report(undo, true))
	b.want(schema.SagaCompensated, " started", "one done", "two failed", "one undoing", "one stuck", "one undone")

	// A call that was cancelled has no dead letter: the saga leaves one, and its replay calls Undo again.
	*b.memory = *start
	cancelled := schema.Outcome{Ref: undo.ReplyTo.Ref, Cause: schema.CauseCancelled}
	b.must(schema.NewJob("order", "report", cancelled))
	if err := b.run(b.take("resume"), handlers.Call{Replay: 1}); err != nil {
		t.Fatal(err)
	}
	b.must(report(b.take("undo-a"), true))
	b.want(schema.SagaCompensated, " started", "one done", "two failed", "one undoing", "one stuck", "one undoing", "one undone")
}

func TestOnUndone_that_fails_is_called_again_by_a_replay(t *testing.T) {
	t.Parallel()
	broken := true
	b := newBench(
		t,
		Step[order]{Name: "one", Do: tells("a"), Undo: asks("undo-a"), OnUndone: func(_ *Context, o order, r schema.Outcome) (Result[order], error) {
			if broken {
				return Result[order]{}, Fail("no receipt")
			}
			return Next(o.with(string(r.Result)), "taken back"), nil
		}},
		Step[order]{Name: "two", Do: fails(Fail("sold out"))},
	)
	b.start()
	b.must(report(b.take("undo-a"), true))
	b.want(schema.SagaStuck, " started", "one done", "two failed", "one undoing", "one stuck")
	broken = false
	letter := b.take("resume")
	for range 2 {
		if err := b.run(letter, handlers.Call{Replay: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b.want(schema.SagaCompensated, " started", "one done", "two failed", "one undoing", "one stuck", "one undone")
	if got := b.state().Log; !slices.Equal(got, []string{"a", "undo-a", `{"answer":7}`}) {
		t.Errorf("the state has seen %q", got)
	}
}

func TestTimeout_may_wait_on_or_give_up_what_is_open(t *testing.T) {
	t.Parallel()
	reminded := 0
	b := newBench(t, Step[order]{Name: "one", Do: asks("a"), Timeout: time.Hour, OnTimeout: func(_ *Context, o order) (Result[order], error) {
		reminded++
		res := Next(o, "remind", Tell(work("remind"), nil))
		res.Wait = reminded < 3
		return res, nil
	}})
	b.start()
	a := b.take("a")
	first := b.take("timeout")
	b.must(first)
	b.must(first) // of a time that is over
	again := b.copy()
	b.must(report(a, true))
	b.want(schema.SagaDone, " started", "one waiting", "one timed_out", "one done")

	*b.memory = *again
	b.must(b.take("timeout"))
	b.must(b.take("timeout"))
	b.must(report(a, true))
	b.want(schema.SagaDone, " started", "one waiting", "one timed_out", "one timed_out", "one done", "one ignored")
}

func TestDefinition_that_has_lost_a_step_is_a_permanent_error(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: tells("a"), Undo: tells("undo-a")}, Step[order]{Name: "two", Do: asks("b"), Timeout: time.Hour})
	b.start()
	job := b.take("b")
	whole, kinds := b.def, b.kinds()
	for gone, def := range map[string]*Definition[order]{
		"two": New[order]("order", whole.steps[0]),
		"one": New[order]("order", whole.steps[1]),
	} {
		b.def = def
		for _, msg := range []schema.Envelope{report(job, false), b.jobs[1]} {
			err := b.run(msg, handlers.Call{})
			if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), `saga order/o-1 needs step "`+gone+`"`) {
				t.Errorf("%s without step %s: %v", msg.Name, gone, err)
			}
		}
	}
	b.def = whole
	if !slices.Equal(b.kinds(), kinds) {
		t.Fatalf("the ledger says %q", b.kinds())
	}
	b.must(report(job, false)) // the replay, when the step is back
	b.want(schema.SagaCompensated, " started", "one done", "two waiting", "two failed", "one undone")
}

func TestSaga_of_another_tenant_is_not_touched(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: asks("a"), Await: "go"}, OnSignal("go", func(_ *Context, o order, _ any) (Result[order], error) { return Next(o, ""), nil }))
	b.start()
	for _, msg := range []schema.Envelope{
		b.def.Signal("o-1", "go", nil, schema.WithTenant("other")),
		b.def.Start("o-1", order{Name: "y"}, schema.WithTenant("other")),
		b.def.Start("o-1", order{Name: "y"}, schema.WithKey("another")),
	} {
		if err := b.run(msg, handlers.Call{}); schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: %v", msg.Name, err)
		}
	}
	if err := b.run(b.def.Signal("o-2", "go", nil), handlers.Call{}); !errors.Is(err, errNoSaga) || schema.KindOf(err) != schema.Temporary {
		t.Errorf("a signal before its saga: %v", err)
	}
	b.want(schema.SagaWaiting, " started", "one waiting")
}
