package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

func orderedPolicy(attempts int) handlers.Policy {
	policy := quick(attempts)
	policy.Ordered = true
	return policy
}

// calm gives everybody more time than a busy machine takes.
func calm(c *router.Config) { c.AckWait, c.Heartbeat = 12*time.Second, 3*time.Second }

// Messages with one ordering key keep their order through retries.
func TestOrdered_retries_keep_the_order(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open(calm)
		var tries calls
		var done []string
		b.target(bridge, "ledger", orderedPolicy(5), func(ctx context.Context, env schema.Envelope) error {
			tries.add(env)
			if string(env.Payload) == "3" && handlers.Attempt(ctx) < 3 {
				return errFlaky
			}
			done = append(done, string(env.Payload)) // one at a time
			return nil
		})
		var want []string
		for i := range 8 {
			want = append(want, fmt.Sprint(i))
			b.publish(bridge, schema.NewJob("ledger", "book", []byte(fmt.Sprint(i)), schema.WithOrderingKey("account")))
		}
		tally, err := bridge.Drain(t.Context())
		for err == nil && tally.Retried > 0 { // a drain leaves what waits for its next attempt, and all behind it
			wait(50 * time.Millisecond)
			tally, err = bridge.Drain(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		b.awaitNoJobs()
		if !slices.Equal(done, want) || tries.count() != 10 {
			t.Errorf("done %q in %d tries, want %q in 10", done, tries.count(), want)
		}
	})
}

// A message that waits for its next attempt holds back only its own key, of its own tenant; a drain does not wait for it.
func TestOrdered_a_retry_holds_back_only_its_key(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open(calm)
		policy := orderedPolicy(5)
		policy.Retry.Base = time.Hour
		var mu sync.Mutex
		var done []string
		b.target(bridge, "ledger", policy, func(_ context.Context, env schema.Envelope) error {
			if string(env.Payload) == "a1" {
				return errFlaky
			}
			mu.Lock()
			defer mu.Unlock()
			done = append(done, string(env.Payload))
			return nil
		})
		key := schema.WithOrderingKey
		b.publish(bridge, schema.NewJob("ledger", "book", []byte("a1"), key("a")))
		b.publish(bridge, schema.NewJob("ledger", "book", []byte("a2"), key("a")))
		b.publish(bridge, schema.NewJob("ledger", "book", []byte("b1"), key("b")))
		b.publish(bridge, schema.NewJob("ledger", "book", []byte("t1"), key("a"), schema.WithTenant("t")))
		b.publish(bridge, schema.NewJob("ledger", "book", []byte("none")))
		for i := range 2 { // what waited when the first stopped waits for the next one, too
			tally, err := bridge.Drain(t.Context())
			if want := []int64{3, 0}[i]; err != nil || tally.Handled != want {
				t.Fatalf("drain %d: tally %+v, error %v", i, tally, err)
			}
		}
		slices.Sort(done)
		if want := []string{"b1", "none", "t1"}; !slices.Equal(done, want) {
			t.Errorf("done %q, want %q", done, want)
		}
		if n := b.waiting(schema.Jobs, "jobs.>"); n != 2 {
			t.Errorf("%d jobs wait, want 2", n)
		}
	})
}

// Several processes take turns, some stop in the middle of it; each key keeps its order, and each message is done once.
func TestOrdered_processes_that_come_and_go(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.exec("CREATE TABLE effects (what integer)")
		var mu sync.Mutex
		done := map[string][]int{}
		serve := func(edits ...func(*router.Config)) *router.Bridge {
			bridge := b.open(edits...)
			policy := orderedPolicy(20)
			policy.Mode = handlers.ModeTx
			b.target(bridge, "ledger", policy, func(ctx context.Context, env schema.Envelope) error {
				var n int
				fmt.Sscan(string(env.Payload), &n)
				if handlers.Attempt(ctx) == 1 && n%5 == 0 {
					return errFlaky
				}
				err := insertEffect(ctx, b.kind)
				if err == nil {
					mu.Lock()
					done[env.OrderingKey] = append(done[env.OrderingKey], n)
					mu.Unlock()
				}
				return err
			})
			return bridge
		}
		first := serve(calm)
		b.run(first)
		const each = 12
		for n := range each {
			for _, key := range []string{"a", "b", "c"} {
				b.publish(first, schema.NewJob("ledger", "book", []byte(fmt.Sprint(n)), schema.WithOrderingKey(key)))
			}
		}
		for range 3 {
			stop := b.run(serve(calm, noForward))
			wait(100 * time.Millisecond)
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		b.eventually(func() error { // before the first was sent, no jobs wait either
			if n := b.count("SELECT count(*) FROM effects"); n < 3*each {
				return fmt.Errorf("%d effects, want %d", n, 3*each)
			}
			return nil
		})
		b.awaitNoJobs()
		if n := b.count("SELECT count(*) FROM effects"); n != 3*each {
			t.Errorf("%d effects, want %d", n, 3*each)
		}
		for key, ns := range done {
			if len(ns) != each || !slices.IsSorted(ns) {
				t.Errorf("key %s was done as %v", key, ns)
			}
		}
	})
}

// A process that dies takes many messages along that it had in hand. Only what runs when it dies is given up for that.
func TestTrial_crashes_are_blamed_on_what_runs(t *testing.T) {
	for name, ordered := range map[string]bool{"ordered": true, "not ordered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := orderedPolicy(3)
			policy.Ordered, policy.MaxCrashes = ordered, 3
			crashesAreBlamed(t, policy)
		})
	}
}

func crashesAreBlamed(t *testing.T, policy handlers.Policy) {
	b := onSQLite(t)
	sender := b.open(calm)
	for _, name := range []string{"bad", "1", "2", "3"} {
		b.publish(sender, schema.NewJob("ledger", "book", []byte(name)))
	}
	if _, err := sender.Drain(t.Context()); err != nil { // it has no targets
		t.Fatal(err)
	}
	b.handOutInVain("ledger", 4)
	var seen calls
	deaf := make(chan struct{})
	open := func() *router.Bridge {
		bridge := b.open(calm, func(c *router.Config) { c.AckWait, c.CloseTimeout = 4*time.Second, 200*time.Millisecond })
		b.target(bridge, "ledger", policy, func(_ context.Context, env schema.Envelope) error {
			if seen.add(env); string(env.Payload) == "bad" {
				<-deaf // as a process that dies in it: nothing is written down
			}
			return nil
		})
		return bridge
	}
	stop := b.run(open())
	b.eventually(func() error {
		for _, env := range seen.all() {
			if string(env.Payload) == "bad" {
				return nil
			}
		}
		return errors.New("the bad one does not run")
	})
	if err := stop(); !errors.Is(err, router.ErrUnfinished) {
		t.Errorf("run returned %v", err)
	}
	b.run(open())
	letter := b.awaitLetters(1)[0]
	b.awaitNoJobs()
	close(deaf)
	if string(letter.Payload) != "bad" || letter.Cause != schema.CauseCrashing {
		t.Errorf("the letter is of %s, cause %s", letter.Payload, letter.Cause)
	}
	if n := len(seen.byID()); n != 4 || seen.count() != 4 {
		t.Errorf("%d messages have run %d times, want 4 once", n, seen.count())
	}
}

// The process that takes a target over has deliveries with numbers that the one before it has had: their attempts count all
// the same.
func TestOrdered_a_take_over_adds_no_attempts(t *testing.T) {
	t.Parallel()
	const attempts = 6
	for before := 1; before < 5; before++ {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			t.Parallel()
			b := onSQLite(t)
			policy := orderedPolicy(attempts)
			policy.Mode, policy.Retry.Base = handlers.ModeTx, 500*time.Millisecond
			var seen calls
			open := func(edits ...func(*router.Config)) *router.Bridge {
				bridge := b.open(edits...)
				b.target(bridge, "ledger", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return errFlaky })
				return bridge
			}
			first := open()
			job := schema.NewJob("ledger", "book", nil, schema.WithOrderingKey("account"))
			b.publish(first, job)
			stop := b.run(first)
			b.eventually(func() error { // it waits in the process now
				rec, err := b.store.InboxByMessage(t.Context(), job.ID)
				if err != nil || len(rec) != 1 || rec[0].Attempts < before {
					return fmt.Errorf("records %+v, error %v", rec, err)
				}
				return nil
			})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			b.run(open(noForward))
			if letter := b.awaitLetters(1)[0]; letter.Attempts != attempts || seen.count() != attempts {
				t.Errorf("%d calls and a letter with %d attempts, want %d", seen.count(), letter.Attempts, attempts)
			}
		})
	}
}

// handOutInVain makes the consumer of a target and has the server hand out all its messages several times.
func (b *bench) handOutInVain(target string, times int) {
	b.Helper()
	consumer, err := b.js.CreateConsumer(b.Context(), b.subjects.StreamName(schema.Jobs), jetstream.ConsumerConfig{
		Durable: target, FilterSubjects: []string{b.subjects.Target(target), b.subjects.Replays(target)},
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: -1,
	})
	if err != nil {
		b.Fatal(err)
	}
	waiting := b.waiting(schema.Jobs, "jobs.>")
	for range times {
		batch, err := consumer.Fetch(waiting, jetstream.FetchMaxWait(patience))
		if err != nil {
			b.Fatal(err)
		}
		for m := range batch.Messages() {
			if err := m.Nak(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
