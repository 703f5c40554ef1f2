package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestErrors_carry_kind_and_wait(t *testing.T) {
	t.Parallel()
	cause := errors.New("gone")
	if err := fmt.Errorf("call: %w", handlers.Permanent(cause)); schema.KindOf(err) != schema.Permanent || !errors.Is(err, cause) {
		t.Errorf("permanent: %v is %v", err, schema.KindOf(err))
	}
	err := fmt.Errorf("call: %w", handlers.RetryAfter(cause, time.Minute))
	if wait, ok := schema.RetryAfterOf(err); !ok || wait != time.Minute || schema.KindOf(err) != schema.Temporary || !errors.Is(err, cause) {
		t.Errorf("retry after: %v, %v, %v", wait, ok, schema.KindOf(err))
	}
	if got := schema.Reason(handlers.RetryAfter(cause, time.Minute)); got != "error: gone" {
		t.Errorf("reason is %q", got)
	}
	if err := handlers.RetryAfter(handlers.Permanent(cause), time.Minute); schema.KindOf(err) != schema.Temporary {
		t.Errorf("the outermost mark must count, got %v", schema.KindOf(err))
	}
	if _, ok := schema.RetryAfterOf(handlers.Permanent(err)); ok {
		t.Error("a permanent error has no wait")
	}
	err = fmt.Errorf("call: %w", handlers.Snooze(cause, time.Minute))
	if wait, ok := schema.SnoozeOf(err); !ok || wait != time.Minute || schema.KindOf(err) != schema.Temporary || !errors.Is(err, cause) {
		t.Errorf("snooze: %v, %v, %v", wait, ok, schema.KindOf(err))
	}
	if err := fmt.Errorf("call: %w", handlers.Cancel(cause)); !schema.IsCancel(err) || schema.KindOf(err) != schema.Permanent || !errors.Is(err, cause) {
		t.Errorf("cancel: %v is %v", err, schema.KindOf(err))
	}
	if handlers.Permanent(nil) != nil || handlers.RetryAfter(nil, time.Second) != nil || handlers.Snooze(nil, 0) != nil || handlers.Cancel(nil) != nil || handlers.Gone(nil) != nil {
		t.Error("nil must stay nil")
	}
}

type fakeUnit struct {
	schema.Unit
	tx any
}

func (u fakeUnit) Tx() any { return u.tx }

func TestCall_values(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if _, ok := handlers.CallFrom(ctx); ok || handlers.Attempt(ctx) != 0 || handlers.Key(ctx) != "" {
		t.Error("a plain context has no call")
	}
	ctx = handlers.WithCall(ctx, handlers.Call{Handler: "billing", Key: "k", Attempt: 3})
	if handlers.Attempt(ctx) != 3 || handlers.Key(ctx) != "k" {
		t.Errorf("attempt %d, key %q", handlers.Attempt(ctx), handlers.Key(ctx))
	}
	_, err := handlers.Tx[*int](ctx)
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), `"billing" has no transaction`) {
		t.Errorf("without a transaction: %v", err)
	}
	one := 1
	ctx = handlers.WithCall(ctx, handlers.Call{Handler: "billing", Unit: fakeUnit{tx: &one}})
	if tx, err := handlers.Tx[*int](ctx); err != nil || tx != &one {
		t.Errorf("got %v, error %v", tx, err)
	}
	ctx2 := handlers.WithCall(ctx, handlers.Call{Handler: "billing", Unit: fakeUnit{tx: schema.WithKind(schema.NotMine, schema.ErrLeaseLost)}})
	if _, err := handlers.Tx[*int](ctx2); !errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) != schema.NotMine {
		t.Errorf("a transaction that cannot begin: %v", err)
	}
	if _, err := handlers.Tx[string](ctx); schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "is a *int, not a string") {
		t.Errorf("wrong type: %v", err)
	}
}

var noop = handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil })

func TestPolicy(t *testing.T) {
	t.Parallel()
	p := handlers.Policy{}.OrDefault()
	if p.Retry != schema.DefaultRetry || p.Timeout != 30*time.Second || p.Concurrency != 10 || p.Mode != handlers.ModeLease || p.MaxCrashes != 12 {
		t.Errorf("defaults are %+v", p)
	}
	p = handlers.Policy{Retry: schema.CappedBackoff(time.Second, 1, 0, 3)}.OrDefault()
	if p.Breaker != (handlers.Breaker{}) {
		t.Errorf("breaker is %+v, want none", p.Breaker)
	}
	if b := (handlers.Policy{Breaker: handlers.Breaker{Failures: 5}}).OrDefault().Breaker; b.Cooldown != handlers.DefaultCooldown {
		t.Errorf("breaker is %+v", b)
	}
	if p.MaxCrashes != 5 {
		t.Errorf("max crashes of 3 attempts is %d, want 5", p.MaxCrashes)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	bad := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: -1, Base: -1, Factor: 1}, Timeout: -1, Concurrency: -2, Rate: math.Inf(1), Mode: 9, MaxCrashes: -3, Breaker: handlers.Breaker{Failures: -1, Cooldown: -1, DisableAfter: -1}}
	err := bad.Validate()
	for _, want := range []string{"max_attempts is -1", "base is -1ns", "timeout is -1ns", "concurrency is -2", "rate is +Inf", "mode is unknown(9)", "max_crashes is -3", "breaker.failures is -1", "breaker.cooldown is -1ns", "breaker.disable_after is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestPolicy_rate(t *testing.T) {
	t.Parallel()
	for rate, ok := range map[float64]bool{0: true, 0.5: true, 1e6: true, -1: false, math.Inf(1): false, math.NaN(): false} {
		if err := (handlers.Policy{Rate: rate}).Validate(); (err == nil) != ok {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
}

func TestNames_as_text(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]handlers.Mode{"": handlers.ModeLease, "lease": handlers.ModeLease, "tx": handlers.ModeTx, "none": handlers.ModeNone} {
		var m handlers.Mode
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("mode %q: got %v, error %v", text, m, err)
		}
	}
	var m handlers.Mode
	if err := m.UnmarshalText([]byte("maybe")); err == nil || !strings.Contains(err.Error(), `"maybe"`) {
		t.Errorf("bad mode: %v", err)
	}
	var s handlers.Start
	if err := s.UnmarshalText([]byte("all")); err != nil || s != handlers.FromAll || s.String() != "all" {
		t.Errorf("start: got %v, error %v", s, err)
	}
}

func TestTarget_validate(t *testing.T) {
	t.Parallel()
	if err := (handlers.Target{Name: "billing", Handler: noop}).Validate(); err != nil {
		t.Error(err)
	}
	err := handlers.Target{Name: "Bad.Name", Policy: handlers.Policy{Timeout: -1}}.Validate()
	for _, want := range []string{`target "Bad.Name"`, "name: ", "handler: there is none", "policy: timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	err = handlers.Target{Name: "mb-cursor-guard", Handler: noop}.Validate()
	if err == nil || !strings.Contains(err.Error(), "are ours") {
		t.Errorf("reserved name: %v", err)
	}
}

func TestSubscription_validate(t *testing.T) {
	t.Parallel()
	for _, events := range [][]string{{"order.placed"}, {">"}, {"*"}, {"order.*", "invoice.>"}, {"order.placed", "order.placed.again", "order"}, {"*.placed", "order.paid"}, {"a.*", "a"}} {
		if err := (handlers.Subscription{Name: "stats", Events: events, Handler: noop}).Validate(); err != nil {
			t.Errorf("events %q: %v", events, err)
		}
	}
	for _, c := range []struct {
		events []string
		want   string
	}{
		{nil, "there are none"},
		{[]string{"Order"}, `event "Order"`},
		{[]string{"order..placed"}, `event "order..placed"`},
		{[]string{">.placed"}, `event ">.placed"`},
		{[]string{"a*"}, `event "a*"`},
		{[]string{"order.placed", "order.placed"}, `"order.placed" and "order.placed" overlap`},
		{[]string{"order.>", "order.placed"}, "overlap"},
		{[]string{"order.*", "*.placed"}, "overlap"},
		{[]string{"order.*.x", "order.>"}, "overlap"},
		{[]string{">", "a"}, "overlap"},
	} {
		err := handlers.Subscription{Name: "stats", Events: c.events, Handler: noop}.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `subscription "stats"`) {
			t.Errorf("events %q: error %v lacks %q", c.events, err, c.want)
		}
	}
}
