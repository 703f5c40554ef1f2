package saga

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

type note struct{ Text string }

func noted(c *Context, o order, n note) (Result[order], error) {
	switch n.Text {
	case "bad":
		return Result[order]{}, handlers.Permanent(errNot)
	case "fail":
		return Result[order]{}, Fail("called off")
	}
	return Next(o.with(c.Step+":"+n.Text), ""), nil
}

func TestSignals(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) *bench {
		b := newBench(
			t,
			Step[order]{Name: "one", Do: asks("a"), Undo: tells("undo-a")},
			Step[order]{Name: "two", Do: tells("b"), Await: "arrived", Timeout: time.Hour, Undo: tells("undo-b")},
			OnSignal("arrived", noted), OnSignal("note", noted),
		)
		b.start()
		return b
	}
	signal := func(b *bench, name, text string) { b.must(b.def.Signal("o-1", name, note{text})) }

	t.Run("awaited", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		b.must(report(b.take("a"), true))
		signal(b, "arrived", "x")
		signal(b, "arrived", "y") // too late
		b.must(b.take("timeout"))
		b.want(schema.SagaDone, " started", "one waiting", "one done", "two waiting", "two done", "two ignored")
		if got := b.state().Log; !slices.Equal(got, []string{"a", "b", "two:x"}) {
			t.Errorf("the state has seen %q", got)
		}
	})
	t.Run("early", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		signal(b, "arrived", "x")
		b.must(report(b.take("a"), true))
		b.want(schema.SagaDone, " started", "one waiting", "one signal", "one done", "two waiting", "two done")
	})
	t.Run("early and bad", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		signal(b, "arrived", "bad")
		b.must(report(b.take("a"), true))
		b.want(schema.SagaCompensated, " started", "one waiting", "one signal", "one done", "two waiting", "two failed", "two undone", "one undone")
	})
	t.Run("any time", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		signal(b, "note", "x")
		b.want(schema.SagaWaiting, " started", "one waiting", "one signal")
		b.must(report(b.take("a"), true))
		signal(b, "note", "y")
		if got := b.state().Log; !slices.Equal(got, []string{"a", "one:x", "b", "two:y"}) {
			t.Errorf("the state has seen %q", got)
		}
		signal(b, "note", "fail")
		b.want(schema.SagaCompensated, " started", "one waiting", "one signal", "one done", "two waiting", "two signal", "two failed", "two undone", "one undone")
		signal(b, "note", "z")
		if got := b.kinds(); got[len(got)-1] != "one ignored" {
			t.Errorf("the ledger says %q", got)
		}
	})
	t.Run("bad", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		before := b.kinds()
		for _, msg := range []schema.Envelope{
			b.def.Signal("o-1", "note", note{"bad"}), b.def.Signal("o-1", "note", 7),
			schema.NewJob("order", "signal", signalArgs{ID: "o-1", Name: "other"}),
		} {
			if err := b.run(msg, handlers.Call{Attempt: 3, MaxAttempts: 3}); schema.KindOf(err) != schema.Permanent {
				t.Errorf("%s: %v", msg.Payload, err)
			}
		}
		if !slices.Equal(b.kinds(), before) {
			t.Errorf("the ledger says %q", b.kinds())
		}
	})
	t.Run("asks", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, Step[order]{Name: "one", Do: asks("a")}, OnSignal("note", func(_ *Context, o order, _ any) (Result[order], error) {
			return Next(o, "", Ask(work("b"), nil)), nil
		}))
		b.start()
		if err := b.run(b.def.Signal("o-1", "note", nil), handlers.Call{}); schema.KindOf(err) != schema.Permanent {
			t.Error(err)
		}
	})
}

func TestMessages_that_are_wrong_are_refused_when_they_are_published(t *testing.T) {
	t.Parallel()
	d := New("order", Step[order]{Name: "one", Do: tells("a")})
	for name, env := range map[string]schema.Envelope{
		"no id": d.Start("", order{}), "long id": d.Start(strings.Repeat("x", MaxID+1), order{}),
		"signal": d.Signal("o-1", "none", nil),
	} {
		if err := env.Validate(0); !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := strings.Repeat("ü", MaxID)
	for _, env := range []schema.Envelope{
		d.Start(longest, order{}),
		schema.NewJob("work", "a", nil, schema.WithOrderingKey(longest), schema.WithReplyTo("order", "report", callRef(longest, 1e9, 1e4))),
	} {
		if err := env.Validate(0); err != nil {
			t.Error(err)
		}
	}
}

func TestValidate_reports_everything(t *testing.T) {
	t.Parallel()
	d := New("Bad name", Step[order]{Name: "one", Timeout: -1, OnUndone: func(*Context, order, schema.Outcome) (Result[order], error) { return Result[order]{}, nil }},
		Step[order]{Name: "one", Do: tells("a"), Await: "go", OnTimeout: tells("b")}, Step[order]{Name: "No", Do: tells("a")},
		OnSignal[order, any]("x", nil), OnSignal("X", noted), OnSignal("y", noted), OnSignal("y", noted))
	err := d.Target(handlers.Policy{}).Validate()
	for _, want := range []string{
		"Bad name", `step "one": do: there is none`, `step "one": timeout is -1ns`, `step "one": on undone: there is no undo`, `step "one": is there twice`,
		`step "one": nothing says what the signal "go" does`, `step "one": on timeout: there is no timeout`, `step "No"`,
		`signal "x": has no function`, `"X"`, `signal "y": is there twice`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if err := New[order]("empty").Validate(); err == nil {
		t.Error("no steps are no error")
	}
	if h := New("x", Part[order](Step[order]{Name: "one", Do: tells("a")})).Target(handlers.Policy{}); h.Policy.Mode != handlers.ModeTx {
		t.Error("the target is not in a transaction")
	}
}

func TestNewKey_has_a_prefix_and_a_ulid_that_sorts(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1469918176385) // the example of the ULID specification
	if got := newULID(at); !strings.HasPrefix(got, "01ARYZ6S41") || len(got) != 26 {
		t.Errorf("%s", got)
	}
	if a, b := newULID(at), newULID(at.Add(time.Millisecond)); a >= b {
		t.Errorf("%s does not come before %s", a, b)
	}
	if a, b := NewKey("ship"), NewKey("ship"); a == b || !strings.HasPrefix(a, "ship_") {
		t.Errorf("%s and %s", a, b)
	}
}
