package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// A stop handles what is due, in order, and says what it leaves.
func TestRun_drains_in_order_when_it_stops(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	q, clock := newQueue(t, inprocess.Config{AllowLoss: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	var got seen
	target(t, q, "mailer", handlers.Policy{Concurrency: 1}, func(ctx context.Context, env schema.Envelope) error {
		if got.add(ctx, env) == 1 {
			stop()
		}
		if ctx.Err() != nil {
			t.Error("the stop has ended the handler's context")
		}
		return nil
	})
	for i := range 10 {
		publish(t, q, job(fmt.Sprint(i)))
	}
	publish(t, q, job("later", schema.WithDelay(time.Hour)), schema.NewJob("nobody", "x", nil))
	if err := q.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if names := got.names(); len(names) != 10 || !slices.IsSorted(names) {
		t.Errorf("handled %v", names)
	}
	if s := log.String(); !strings.Contains(s, "messages are lost if the process ends now") || !strings.Contains(s, "waiting=1 parked=1") {
		t.Errorf("the log does not tell what is left: %s", s)
	}
	clock.Advance(time.Hour)
	if n := handlertest.DrainUntilEmpty(t, q).Handled; n != 1 {
		t.Errorf("%d handled after the stop, want the one that waited", n)
	}
}

func TestRun_cuts_off_who_does_not_finish(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{AllowLoss: true, CloseTimeout: 50 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var got seen
	target(t, q, "mailer", handlers.Policy{Ordered: true}, func(ctx context.Context, env schema.Envelope) error {
		if got.add(ctx, env) == 1 {
			stop()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	for i := range 3 {
		publish(t, q, job(fmt.Sprint(i), schema.WithOrderingKey("k")))
	}
	if err := q.Run(ctx); !errors.Is(err, inprocess.ErrUnfinished) {
		t.Fatalf("error %v", err)
	}
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 3})
	if names := got.names(); !slices.Equal(names, []string{"0", "0", "1", "2"}) || got.calls[1].Attempt != 1 {
		t.Errorf("ran %v, calls %+v", names, got.calls)
	}
}

func TestRun_handles_what_is_published_meanwhile(t *testing.T) {
	t.Parallel()
	q := inprocess.New[struct{}](inprocess.Config{AllowLoss: true, Logger: testkit.Logger(t)}) // on the system's clock
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	fails := 1
	target(t, q, "mailer", handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond, Factor: 1}}, func(ctx context.Context, env schema.Envelope) error {
		switch env.Name {
		case "first":
			_, err := q.Publish(ctx, struct{}{}, job("second", schema.WithDelay(time.Millisecond)))
			return err
		case "second":
			if fails--; fails >= 0 {
				return errDown
			}
			close(done)
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	publish(t, q, job("first"))
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the second message did not arrive")
	}
	for what, err := range map[string]error{
		"second run": q.Run(ctx), "target": q.Target(handlers.Target{Name: "late", Handler: &seen{}}),
	} {
		if !errors.Is(err, inprocess.ErrBusy) {
			t.Errorf("%s while it runs: %v", what, err)
		}
	}
	if _, err := q.Drain(t.Context()); !errors.Is(err, inprocess.ErrBusy) {
		t.Errorf("drain while it runs: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDrain_ends_with_its_context(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{CloseTimeout: 10 * time.Millisecond})
	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	stuck := make(chan struct{})
	target(t, q, "mailer", handlers.Policy{Concurrency: 1}, func(ctx context.Context, env schema.Envelope) error {
		switch env.Name {
		case "slow":
			stop(enough)
			<-ctx.Done()
		case "stuck":
			<-stuck
		}
		return ctx.Err()
	})
	publish(t, q, job("slow"), job("next"))
	tally, err := q.DrainUntilEmpty(ctx)
	if !errors.Is(err, enough) || !errors.Is(err, inprocess.ErrUnfinished) {
		t.Errorf("error %v", err)
	}
	wantTally(t, tally, inprocess.Tally{Waiting: 2})
	close(stuck)
}

// A message that is never ready would keep a clock that is moved running for ever.
func TestDrainUntilEmpty_does_not_outlive_its_context(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{Logger: slog.New(slog.DiscardHandler)})
	target(t, q, "mailer", handlers.Policy{}, func(context.Context, schema.Envelope) error {
		return handlers.Snooze(errDown, time.Hour)
	})
	publish(t, q, job("send"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	tally, err := q.DrainUntilEmpty(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || tally.Waiting != 1 || tally.Snoozed == 0 {
		t.Errorf("tally %+v, error %v", tally, err)
	}
}
