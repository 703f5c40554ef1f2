package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func (b *bench) circuit() (schema.Circuit, error) {
	list, err := b.store.Circuits(b.Context())
	if err != nil || len(list) != 1 {
		return schema.Circuit{}, errors.Join(fmt.Errorf("circuits %+v", list), err)
	}
	return list[0], nil
}

// While the target is down it is called a few times only, by whichever process, and no message dies of it; when it is
// back everything is done.
func TestBreaker_spares_a_target_that_is_down(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const jobs, limit, concurrency, cooldown = 30, 4, 3, 400 * time.Millisecond
		var down atomic.Bool
		down.Store(true)
		var seen calls
		var counts [2]atomic.Int64
		policy := quick(12)
		policy.Concurrency, policy.Breaker = concurrency, handlers.Breaker{Failures: limit, Cooldown: cooldown}
		bridges := []*router.Bridge{b.open(), b.open(noForward)}
		for i, bridge := range bridges {
			b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
				counts[i].Add(1)
				seen.add(env)
				if down.Load() {
					return errFlaky
				}
				return nil
			})
		}
		var batch []schema.Envelope
		for range jobs {
			batch = append(batch, schema.NewJob("billing", "charge", nil))
		}
		b.publish(bridges[0], batch...)
		b.run(bridges[0])
		opened := func() error {
			c, err := b.circuit()
			if err == nil && !c.Open {
				err = fmt.Errorf("circuit %+v", c)
			}
			return err
		}
		b.eventually(opened)
		b.run(bridges[1]) // it has seen no failure itself
		start, before := time.Now(), seen.count()
		b.eventually(seen.reaches(before + concurrency + 2)) // those in hand and some tries
		probes := int(time.Since(start)/cooldown) + 2
		if n := seen.count(); n > limit+concurrency+probes+1 {
			t.Errorf("%d calls while the target is down, %d of them may be tries", n, probes)
		}
		if n := len(b.letters()); n != 0 {
			t.Errorf("%d messages died", n)
		}
		problem := ""
		b.eventually(func() error {
			for _, h := range bridges[1].Health(t.Context()).Handlers {
				if h.Circuit.Open && h.Circuit.Reason == "error: "+errFlaky.Error() {
					return nil
				}
				problem = fmt.Sprintf("%+v", h)
			}
			return errors.New(problem)
		})
		down.Store(false)
		b.awaitNoJobs()
		if got := len(seen.byID()); got != jobs || len(b.letters()) != 0 {
			t.Errorf("%d of %d messages were handled, %d died", got, jobs, len(b.letters()))
		}
		if c, err := b.store.Circuits(t.Context()); err != nil || len(c) != 0 {
			t.Errorf("circuits %+v are left, error %v", c, err)
		}
		t.Logf("calls by process: %d, %d", counts[0].Load(), counts[1].Load())
	})
}

// With an open circuit a stop does not wait and a drain takes what waits for not due; the messages stay.
func TestBreaker_holds_up_no_stop(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	if _, err := b.store.CircuitFailed(t.Context(), "billing", "down", 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	bridge := b.open()
	policy := quick(2)
	policy.Mode, policy.Breaker = handlers.ModeTx, handlers.Breaker{Failures: 1, Cooldown: time.Hour}
	var seen, other calls
	b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	b.target(bridge, "mail", handlers.Policy{Mode: handlers.ModeTx}, func(_ context.Context, env schema.Envelope) error { other.add(env); return nil })
	for range 20 {
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
	}
	b.publish(bridge, schema.NewJob("mail", "send", nil))
	tally, err := bridge.Drain(t.Context())
	if err != nil || tally.Counts != (router.Counts{Handled: 1}) || seen.count() != 0 {
		t.Errorf("tally %+v, %d calls, error %v", tally, seen.count(), err)
	}
	stop := b.run(bridge)
	b.publish(bridge, schema.NewJob("mail", "send", nil))
	b.eventually(other.reaches(2))
	start := time.Now()
	if err := stop(); err != nil || time.Since(start) > 9*time.Second {
		t.Errorf("the stop took %v, error %v", time.Since(start), err)
	}
	for range 6 { // as often as would make a message look as if it killed the process
		stop := b.run(bridge)
		b.eventually(func() error {
			for _, h := range bridge.Health(t.Context()).Handlers {
				if h.Name == "billing" && h.Circuit.Open && h.Running == handlers.DefaultConcurrency {
					return nil
				}
			}
			return errors.New("not yet in hand")
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.waiting(schema.Jobs, "jobs.billing.>"); n != 20 || seen.count() != 0 {
		t.Errorf("%d messages wait, %d calls", n, seen.count())
	}
	if err := b.store.CircuitClosed(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	b.run(bridge)
	b.eventually(seen.reaches(20))
	b.awaitNoJobs()
	if letters := b.letters(); len(letters) != 0 {
		t.Errorf("%d messages died, the first of %s", len(letters), letters[0].Cause)
	}
}

// A message whose deliveries all have a result is no suspect after it has waited for its target: it is on no trial.
func TestBreaker_makes_nobody_suspect(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		policy := quick(20)
		policy.MaxCrashes, policy.Breaker = 3, handlers.Breaker{Failures: 3, Cooldown: 200 * time.Millisecond}
		var seen calls
		bridge := b.open()
		b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
			n := seen.add(env)
			recs, err := b.store.InboxByMessage(ctx, env.ID)
			if err != nil || len(recs) != 1 || recs[0].Deliveries != uint64(n-1) {
				t.Errorf("at call %d the inbox has %+v, error %v", n, recs, err)
			}
			if n < 6 {
				return errFlaky
			}
			return nil
		})
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
		b.run(bridge)
		b.eventually(seen.reaches(6))
		b.awaitNoJobs()
	})
}

// One crash after a wait for the target is one crash, as it is without.
func TestBreaker_makes_no_crash_loop_of_one_crash(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	policy := quick(20)
	policy.MaxCrashes, policy.Breaker = 3, handlers.Breaker{Failures: 3, Cooldown: 300 * time.Millisecond}
	var seen calls
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	open := func() *router.Bridge {
		bridge := b.open(calm, func(c *router.Config) { c.AckWait, c.CloseTimeout = 4*time.Second, 200*time.Millisecond })
		b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
			switch n := seen.add(env); {
			case n <= 3:
				return errFlaky
			case n == 4:
				<-deaf // as a process that dies in it: nothing is written down
			}
			return nil
		})
		return bridge
	}
	first := open()
	b.publish(first, schema.NewJob("billing", "charge", nil))
	stop := b.run(first)
	b.eventually(seen.reaches(4))
	if err := stop(); !errors.Is(err, router.ErrUnfinished) {
		t.Errorf("run returned %v", err)
	}
	if err := b.store.CircuitClosed(t.Context(), "billing"); err != nil { // as if another message had gone well
		t.Fatal(err)
	}
	b.run(open())
	b.awaitNoJobs()
	if letters := b.letters(); len(letters) != 0 || seen.count() != 5 {
		t.Errorf("%d calls, want 5; letters %+v", seen.count(), letters)
	}
}

// A message that kills each process that tries it while its target is down is given up like any other.
func TestBreaker_hides_no_crash_loop(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.forwardJob()
		p := b.newProcess(handlers.ModeTx) // a lease would keep the next process waiting
		p.Breaker = handlers.Breaker{Failures: 1, Cooldown: 200 * time.Millisecond}
		if _, err := b.store.CircuitFailed(t.Context(), "fragile", "down", 1, p.Breaker.Cooldown); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			b.die(p)
		}
		bridge := b.open(func(c *router.Config) { *c = crashConfig(*c) })
		policy := crashPolicy(p.Mode)
		policy.Breaker = p.Breaker
		b.target(bridge, "fragile", policy, func(context.Context, schema.Envelope) error {
			t.Error("the handler was called again")
			return nil
		})
		b.run(bridge)
		if letter := b.awaitLetters(1)[0]; letter.Cause != schema.CauseCrashing || letter.Attempts != 0 {
			t.Errorf("letter of %s after %d attempts", letter.Cause, letter.Attempts)
		}
	})
}

// The try of a message that has waited for its target is an attempt.
func TestBreaker_tries_are_attempts(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				policy := quick(6)
				policy.Mode, policy.MaxCrashes, policy.Breaker = mode, 5, handlers.Breaker{Failures: 3, Cooldown: 200 * time.Millisecond}
				var seen calls
				bridge := b.open()
				b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return errFlaky })
				b.publish(bridge, schema.NewJob("billing", "charge", nil))
				b.run(bridge)
				if letter := b.awaitLetters(1)[0]; letter.Attempts != 6 || seen.count() != 6 {
					t.Errorf("%d calls and a letter with %d attempts, want 6", seen.count(), letter.Attempts)
				}
			})
		})
	}
}

// countedStore counts what breakers ask of the store.
type countedStore struct {
	testStore
	writes, looks atomic.Int64
}

func (s *countedStore) Circuits(ctx context.Context) ([]schema.Circuit, error) {
	s.looks.Add(1)
	return s.testStore.Circuits(ctx)
}

func (s *countedStore) CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (schema.Circuit, error) {
	s.writes.Add(1)
	return s.testStore.CircuitFailed(ctx, handler, reason, limit, cooldown)
}

func (s *countedStore) CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error) {
	s.writes.Add(1)
	return s.testStore.CircuitProbe(ctx, handler, cooldown)
}

func (s *countedStore) CircuitClosed(ctx context.Context, handler string) error {
	s.writes.Add(1)
	return s.testStore.CircuitClosed(ctx, handler)
}

// A target that is well costs no writes, and one look a second; what says nothing about the target counts as nothing.
func TestBreaker_costs_nothing_while_all_is_well(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	store := &countedStore{testStore: b.store}
	bridge := b.open(func(c *router.Config) { c.Store = store })
	policy := quick(2)
	policy.Breaker = handlers.Breaker{Failures: 1}
	ends := map[string]error{"fine": nil, "bad": handlers.Permanent(errFlaky), "gone": handlers.Cancel(errFlaky)}
	b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
		if env.Name == "wild" {
			panic("out of paper")
		}
		return ends[env.Name]
	})
	for _, action := range []string{"fine", "bad", "gone", "wild", "fine"} {
		b.publish(bridge, schema.NewJob("billing", action, nil))
	}
	start := time.Now()
	tally, err := bridge.Drain(t.Context())
	if err != nil || tally.Handled != 2 || tally.Dead != 2 || tally.Cancelled != 1 {
		t.Errorf("tally %+v, error %v", tally, err)
	}
	if w, l := store.writes.Load(), store.looks.Load(); w != 0 || l > int64(time.Since(start)/time.Second)+2 {
		t.Errorf("%d writes, %d looks in %v", w, l, time.Since(start))
	}
}

// The clock was a day ahead when the circuit opened, and has been put right since: the target is tried within a cooldown.
func TestBreaker_after_the_clock_was_put_back(t *testing.T) {
	b := onSQLite(t)
	ahead := sqlite.New(b.sqlite, b.sqlite, sqlite.Options{Now: func() time.Time { return time.Now().Add(24 * time.Hour) }})
	t.Cleanup(ahead.Close)
	policy := quick(1)
	policy.Breaker = handlers.Breaker{Failures: 1, Cooldown: 200 * time.Millisecond}
	if _, err := ahead.CircuitFailed(t.Context(), "billing", "down", policy.Breaker.Failures, policy.Breaker.Cooldown); err != nil {
		t.Fatal(err)
	}
	bridge := b.open()
	var seen calls
	b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	b.publish(bridge, schema.NewJob("billing", "charge", nil))
	b.run(bridge)
	b.eventually(seen.reaches(1))
	b.awaitNoJobs()
}
