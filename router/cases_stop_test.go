package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// A stop while ten handlers run: all finish with a live context and are not run again, and nothing else is begun.
func TestC08_stop_lets_handlers_finish(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeNone} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				bridge := b.open()
				policy := quick(3)
				policy.Mode = mode
				var began, ended calls
				stopping := make(chan struct{})
				b.target(bridge, "slow", policy, func(ctx context.Context, env schema.Envelope) error {
					began.add(env)
					select {
					case <-stopping:
					case <-ctx.Done():
						return ctx.Err()
					}
					ended.add(env)
					return ctx.Err()
				})
				stop := b.run(bridge)
				var jobs []schema.Envelope
				for range 15 { // ten run at the same time, five wait
					jobs = append(jobs, schema.NewJob("slow", "x", nil))
				}
				b.publish(bridge, jobs...)
				b.eventually(began.reaches(10))
				time.AfterFunc(500*time.Millisecond, func() { close(stopping) }) // the stop has to wait for them
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if began.count() != 10 || ended.count() != 10 {
					t.Fatalf("%d began and %d ended, want 10 and 10", began.count(), ended.count())
				}
				b.run(bridge)
				b.eventually(ended.reaches(15))
				b.awaitNoJobs()
				for id, n := range began.byID() {
					if n != 1 {
						t.Errorf("message %s ran %d times", id, n)
					}
				}
			})
		})
	}
}

// A stop whose limit passes: what did not finish comes back, costs no attempt, and is counted for the operator.
func TestC08_stop_whose_limit_passes(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx, handlers.ModeNone} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				var log safeBuffer
				bridge := b.open(func(c *router.Config) {
					c.CloseTimeout = 300 * time.Millisecond
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				policy := quick(1) // an attempt that counted would be the last
				policy.Mode = mode
				var seen calls
				var mu sync.Mutex
				patient := true
				b.target(bridge, "slow", policy, func(ctx context.Context, env schema.Envelope) error {
					seen.add(env)
					mu.Lock()
					wait := patient
					mu.Unlock()
					if wait {
						<-ctx.Done()
						return fmt.Errorf("interrupted: %w", ctx.Err())
					}
					return nil
				})
				stop := b.run(bridge)
				b.publish(bridge, schema.NewJob("slow", "x", nil), schema.NewJob("slow", "y", nil))
				b.eventually(seen.reaches(2))
				began := time.Now()
				err := stop()
				if !errors.Is(err, router.ErrUnfinished) || !strings.Contains(err.Error(), "2 after 300ms") {
					t.Errorf("run returned %v", err)
				}
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("the stop took %v", d)
				}
				if !strings.Contains(log.String(), "unfinished=2") {
					t.Errorf("the log does not say how many:\n%s", log.String())
				}
				mu.Lock()
				patient = false
				mu.Unlock()
				b.run(bridge)
				b.eventually(seen.reaches(4))
				b.awaitNoJobs()
				if n := len(b.letters()); seen.count() != 4 || n != 0 {
					t.Errorf("%d calls, %d letters", seen.count(), n)
				}
			})
		})
	}
}

// A stop is no error, however early it comes.
func TestC08_stop_before_it_has_begun(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	for after := range 20 {
		bridge := b.open()
		b.target(bridge, "slow", quick(1), func(context.Context, schema.Envelope) error { return nil })
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
		if err := bridge.Run(ctx); err != nil {
			t.Errorf("stopped after %d ms: %v", after, err)
		}
		stop()
	}
}

// A handler that does not listen to its context cannot hold up the stop for ever.
func TestC08_handler_that_does_not_listen(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open(func(c *router.Config) { c.CloseTimeout = 200 * time.Millisecond })
	release := make(chan struct{})
	finished := make(chan struct{})
	var seen calls
	b.target(bridge, "deaf", quick(1), func(_ context.Context, env schema.Envelope) error {
		if seen.add(env) == 1 {
			<-release
			close(finished)
		}
		return nil
	})
	stop := b.run(bridge)
	b.publish(bridge, schema.NewJob("deaf", "x", nil))
	b.eventually(seen.reaches(1))
	began := time.Now()
	if err := stop(); !errors.Is(err, router.ErrUnfinished) {
		t.Errorf("run returned %v", err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the stop took %v", d)
	}
	close(release)
	<-finished
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
