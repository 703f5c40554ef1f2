package handlers_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// appendUnit keeps what is appended.
type appendUnit struct {
	schema.Unit
	got []schema.Envelope
	err error
}

func (u *appendUnit) Append(_ context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	u.got = append(u.got, envs...)
	return make([]schema.Receipt, len(envs)), u.err
}

var calling = handlers.Call{
	Handler: "billing", ID: "m1", Key: "k1", Attempt: 2, Tenant: "acme", Actor: "ada", RequestID: "r1",
	TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b", Deadline: time.Unix(1e9, 0),
}

func TestInherit_fills_only_what_is_empty(t *testing.T) {
	t.Parallel()
	ctx := handlers.WithCall(t.Context(), calling)
	env := schema.NewJob("mail", "receipt", nil, handlers.Inherit(ctx))
	if env.Tenant != "acme" || env.Actor != "ada" || env.RequestID != "r1" || env.TraceParent != calling.TraceParent || env.TraceState != "a=b" || env.Key != "" {
		t.Errorf("got %+v", env)
	}
	env = schema.NewJob("mail", "receipt", nil, schema.WithTenant("t"), schema.WithActor("a"), schema.WithRequestID("r"), schema.WithTrace("p", ""), handlers.Inherit(ctx))
	if env.Tenant != "t" || env.Actor != "a" || env.RequestID != "r" || env.TraceParent != "p" || env.TraceState != "" {
		t.Errorf("got %+v", env)
	}
	if env := schema.NewJob("mail", "receipt", nil, handlers.Inherit(t.Context())); env.Tenant != "" || env.TraceParent != "" {
		t.Errorf("outside of handlers: %+v", env)
	}
}

func TestPublish_joins_the_transaction(t *testing.T) {
	t.Parallel()
	unit := &appendUnit{}
	c := calling
	c.Unit = unit
	ctx := handlers.WithCall(t.Context(), c)
	event := schema.NewEvent("invoice.paid", nil)
	receipts, err := handlers.Publish(ctx, event, schema.NewJob("mail", "receipt", nil, schema.WithTenant("other")))
	if err != nil || len(receipts) != 2 || len(unit.got) != 2 {
		t.Fatalf("got %d receipts, %d envelopes, error %v", len(receipts), len(unit.got), err)
	}
	if unit.got[0].ID != event.ID || unit.got[0].Tenant != "acme" || unit.got[1].Tenant != "other" || unit.got[1].TraceParent != calling.TraceParent || event.Tenant != "" {
		t.Errorf("published %+v", unit.got)
	}
	unit.err = schema.WithKind(schema.NotMine, schema.ErrLeaseLost)
	if _, err := handlers.Publish(ctx, event); !errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) != schema.NotMine {
		t.Errorf("a transaction that is lost: %v", err)
	}
	for _, ctx := range []context.Context{t.Context(), handlers.WithCall(t.Context(), calling)} {
		if _, err := handlers.Publish(ctx, event); schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), `mode is not "tx"`) {
			t.Errorf("without a transaction: %v", err)
		}
	}
}

func TestReport_last_one_counts(t *testing.T) {
	t.Parallel()
	ctx := handlers.WithCall(t.Context(), calling)
	if got := handlers.ReportOf(ctx); got != nil {
		t.Errorf("nothing was reported: %s", got)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, loan := range []string{"a", "b"} {
		if err := handlers.Report(inner, map[string]string{"loan": loan}); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []any{make(chan int), strings.Repeat("x", handlers.MaxReport)} {
		if err := handlers.Report(ctx, bad); schema.KindOf(err) != schema.Permanent {
			t.Errorf("%T: error %v", bad, err)
		}
	}
	if got := handlers.ReportOf(ctx); string(got) != `{"loan":"b"}` {
		t.Errorf("reported %s", got)
	}
	if got := handlers.ReportOf(handlers.WithCall(ctx, calling)); got != nil {
		t.Errorf("another run has the report of the one before: %s", got)
	}
	if err := handlers.Report(t.Context(), 1); err != nil || handlers.ReportOf(t.Context()) != nil {
		t.Errorf("outside of handlers: %v", err)
	}
}

func TestCallFrom_has_the_context(t *testing.T) {
	t.Parallel()
	got, ok := handlers.CallFrom(handlers.WithCall(t.Context(), calling))
	if !ok || got != calling {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestVerdict_names(t *testing.T) {
	t.Parallel()
	for v, want := range map[handlers.Verdict]string{
		handlers.Ack: "ack", handlers.Retry: "retry", handlers.Dead: "dead", handlers.Release: "release", handlers.Leave: "leave",
		handlers.Snoozed: "snooze", handlers.Cancelled: "cancel", 99: "unknown(99)",
	} {
		if v.String() != want {
			t.Errorf("%d is %s, want %s", v, v, want)
		}
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	none := handlers.HookList{{}}
	quiet := slog.New(slog.DiscardHandler)
	type key struct{}
	env := schema.NewJob("billing", "charge", nil)
	run := none.Start(t.Context(), quiet, env)
	if run.Context() != t.Context() {
		t.Error("no hook, another context")
	}
	run.End(nil, 0)
	run.Settled(handlers.Decision{})

	var steps []string
	hooks := handlers.HookList{{
		Start: func(ctx context.Context, env schema.Envelope) context.Context {
			return context.WithValue(ctx, key{}, "span of "+env.Name)
		},
		End: func(ctx context.Context, _ schema.Envelope, err error, took time.Duration) {
			steps = append(steps, "end", ctx.Value(key{}).(string), err.Error(), took.String())
		},
		Settled: func(_ context.Context, _ schema.Envelope, d handlers.Decision) {
			steps = append(steps, "settled", d.Wait.String())
		},
	}}
	run = hooks.Start(t.Context(), quiet, env)
	run.End(errors.New("busy"), time.Second)
	run.Settled(handlers.Decision{Verdict: handlers.Retry, Wait: time.Minute})
	if got := strings.Join(steps, ", "); got != "end, span of charge, busy, 1s, settled, 1m0s" {
		t.Errorf("steps are %s", got)
	}

	var log strings.Builder
	wild := handlers.HookList{{
		Start:   func(context.Context, schema.Envelope) context.Context { panic("a") },
		End:     func(context.Context, schema.Envelope, error, time.Duration) { panic("b") },
		Settled: func(context.Context, schema.Envelope, handlers.Decision) { panic("c") },
	}}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	run = wild.Start(t.Context(), logger, env)
	if run.Context() != t.Context() {
		t.Error("a hook that panicked changed the context")
	}
	run.End(nil, 0)
	run.Settled(handlers.Decision{})
	if n := strings.Count(log.String(), "hook panicked"); n != 3 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	lost := handlers.HookList{{Start: func(context.Context, schema.Envelope) context.Context { return nil }}}
	if lost.Start(t.Context(), quiet, env).Context() != t.Context() {
		t.Error("a hook that returned nothing changed the context")
	}
}
