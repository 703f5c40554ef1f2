package inprocess_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

var soon = schema.RetryPolicy{MaxAttempts: 3, Base: time.Second, Factor: 1}

// A message that waits for its next attempt holds back those with its key, and no others.
func TestOrdered_keeps_each_key_in_order_through_retries(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	var got seen
	target(t, q, "mailer", handlers.Policy{Ordered: true, Retry: soon}, func(ctx context.Context, env schema.Envelope) error {
		got.add(ctx, env)
		switch {
		case env.Name == "a1" && handlers.Attempt(ctx) < 3:
			return errDown
		case env.Name == "b1":
			return handlers.Permanent(errDown)
		case env.Name == "b2" && handlers.Attempt(ctx) == 1 && len(got.names()) < 5:
			return handlers.Snooze(errDown, time.Millisecond)
		}
		return nil
	})
	key := func(action, key string) schema.Envelope { return job(action, schema.WithOrderingKey(key)) }
	publish(t, q, key("a1", "a"), key("b1", "b"), key("a2", "a"), job("free"), key("b2", "b"), key("a3", "a"), key("b3", "b"))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 6, Retried: 2, Snoozed: 1, Dead: 1})
	byKey := map[string][]string{}
	for _, n := range got.names() {
		byKey[n[:1]] = append(byKey[n[:1]], n)
	}
	if a := byKey["a"]; !slices.Equal(a, []string{"a1", "a1", "a1", "a2", "a3"}) {
		t.Errorf("key a ran as %v", a)
	}
	if b := byKey["b"]; !slices.Equal(b, []string{"b1", "b2", "b2", "b3"}) {
		t.Errorf("key b ran as %v", b)
	}
	names := got.names()
	if at := slices.Index(names, "b3"); at > slices.Index(names, "a2") {
		t.Errorf("a retry of key a held back key b: %v", names)
	}
}

func TestConcurrency_is_bounded_and_used(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	var running, most atomic.Int64
	gate := make(chan struct{})
	target(t, q, "mailer", handlers.Policy{Concurrency: 3}, func(context.Context, schema.Envelope) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		if running.Load() == 3 {
			select {
			case <-gate:
			default:
				close(gate)
			}
		}
		<-gate
		running.Add(-1)
		return nil
	})
	for range 20 {
		publish(t, q, job("send"))
	}
	handlertest.DrainUntilEmpty(t, q)
	if most.Load() != 3 {
		t.Errorf("%d at the same time, want 3", most.Load())
	}
}

func TestRate_spaces_the_starts(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	var at []time.Duration
	start := clock.Now()
	target(t, q, "mailer", handlers.Policy{Rate: 4}, func(context.Context, schema.Envelope) error {
		at = append(at, clock.Now().Sub(start))
		return nil
	})
	publish(t, q, job("1"), job("2"), job("3"))
	tally, err := q.Drain(t.Context()) // what only the rate holds back is due
	if err != nil {
		t.Fatal(err)
	}
	wantTally(t, tally, inprocess.Tally{Handled: 3})
	if want := []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("starts at %v, want %v", at, want)
	}
}

func TestBreaker_lets_one_through_after_each_pause(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	start := clock.Now()
	var at []time.Duration
	policy := handlers.Policy{
		Concurrency: 1, Retry: schema.RetryPolicy{MaxAttempts: 9, Base: time.Millisecond, Factor: 1},
		Breaker: handlers.Breaker{Failures: 3, Cooldown: time.Minute},
	}
	target(t, q, "mailer", policy, func(context.Context, schema.Envelope) error {
		at = append(at, clock.Now().Sub(start).Truncate(time.Minute))
		if len(at) < 5 {
			return errDown
		}
		return nil
	})
	publish(t, q, job("1"), job("2"), job("3"), job("4"))
	tally, err := q.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantTally(t, tally, inprocess.Tally{Retried: 3, Waiting: 4})
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 4, Retried: 1})
	m := time.Minute
	if want := []time.Duration{0, 0, 0, m, 2 * m, 2 * m, 2 * m, 2 * m}; !slices.Equal(at, want) {
		t.Errorf("runs at %v, want %v", at, want)
	}
}

func TestRun_refuses_unless_loss_is_allowed(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	ended, stop := context.WithCancel(t.Context())
	stop()
	err := q.Run(ended)
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "loses its messages when the process ends") ||
		!strings.Contains(err.Error(), "set Config.AllowLoss") {
		t.Errorf("error %v", err)
	}
}
