package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// healthy waits until the bridge finds nothing wrong with itself.
func (b *bench) healthy(bridge *router.Bridge) {
	b.Helper()
	b.eventually(func() error {
		if h := bridge.Health(b.Context()); !h.OK() {
			return fmt.Errorf("%q", h.Problems)
		}
		return nil
	})
}

// unhealthy waits, not longer than limit, until the bridge reports what is wrong.
func (b *bench) unhealthy(bridge *router.Bridge, limit time.Duration, want string) {
	b.Helper()
	began := time.Now()
	b.eventually(func() error {
		if h := bridge.Health(b.Context()); !strings.Contains(strings.Join(h.Problems, "\n"), want) {
			return fmt.Errorf("%q lacks %q", h.Problems, want)
		}
		return nil
	})
	if d := time.Since(began); d > limit {
		b.Errorf("it took %v to report %q", d, want)
	}
}

// The server is away for a while, and the consumer is deleted: a job is handled after that without a restart of ours.
func TestC17_consumption_comes_back(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
		stop := b.run(bridge)
		b.healthy(bridge)

		b.nats.Stop()
		b.unhealthy(bridge, 10*time.Second, "billing: not consuming")
		if receipts := b.publish(bridge, schema.NewJob("billing", "while-away", nil)); receipts[0].ID == "" {
			t.Error("no receipt while the server is away")
		}
		b.nats.Restart()
		b.eventually(seen.reaches(1))
		b.healthy(bridge)

		if err := b.js.DeleteConsumer(t.Context(), "MB_JOBS", "billing"); err != nil {
			t.Fatal(err)
		}
		b.publish(bridge, schema.NewJob("billing", "after-delete", nil))
		b.eventually(seen.reaches(2))
		b.healthy(bridge)
		b.awaitNoJobs()
		if n := seen.count(); n != 2 {
			t.Errorf("%d calls", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A connection that is closed for good is an error of Run, never a clean end.
func TestC17_unexpected_end_is_an_error(t *testing.T) {
	for name, edits := range map[string][]func(*router.Config){"forwarding": nil, "only_consuming": {noForward}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onSQLite(t)
			conn := b.nats.Conn(t)
			bridge := b.open(append(edits, func(c *router.Config) { c.Conn = conn })...)
			b.target(bridge, "billing", quick(1), func(context.Context, schema.Envelope) error { return nil })
			done := make(chan error, 1)
			go func() { done <- bridge.Run(context.Background()) }()
			b.healthy(bridge)
			conn.Close()
			select {
			case err := <-done:
				if !errors.Is(err, jetstream.ErrConnectionClosed) {
					t.Errorf("run returned %v", err)
				}
			case <-time.After(patience):
				t.Error("run goes on without a connection")
			}
			if err := bridge.Run(t.Context()); !errors.Is(err, jetstream.ErrConnectionClosed) {
				t.Errorf("another run returned %v", err)
			}
		})
	}
}

// brokenStore is a store whose inbox is away for as long as it is told.
type brokenStore struct {
	testStore
	mu    sync.Mutex
	away  bool
	tried int
}

var errAway = errors.New("the database is away")

func (s *brokenStore) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *brokenStore) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		s.tried++
		return errAway
	}
	return nil
}

func (s *brokenStore) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried
}

func (s *brokenStore) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	if err := s.err(); err != nil {
		return schema.ClaimResult{}, err
	}
	return s.testStore.Claim(ctx, run)
}

func (s *brokenStore) Done(ctx context.Context, run schema.Run) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.testStore.Done(ctx, run)
}

func (s *brokenStore) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	if err := s.err(); err != nil {
		return schema.InboxRecord{}, err
	}
	return s.testStore.Fail(ctx, run, f)
}

// While the database is away nothing runs, no attempt and no delivery is used up, and health says why; then it goes on.
func TestC17_database_is_away(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		store := &brokenStore{testStore: b.store}
		b.store = store
		bridge := b.open()
		var seen calls
		policy := quick(2)
		policy.MaxCrashes = 1 // one delivery without a result would be the end
		b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
			if seen.add(env) == 1 {
				store.set(true) // it goes away while the handler runs, which then fails
				return errFlaky
			}
			return nil
		})
		store.set(true)
		b.run(bridge)
		b.publish(bridge, schema.NewJob("billing", "x", nil))
		b.unhealthy(bridge, patience, errAway.Error())
		b.eventually(func() error {
			if n := store.tries(); n < 3 {
				return fmt.Errorf("%d tries", n)
			}
			return nil
		})
		if seen.count() != 0 {
			t.Errorf("the handler ran without the inbox")
		}
		store.set(false)
		b.eventually(seen.reaches(1))
		tried := store.tries()
		b.eventually(func() error {
			if n := store.tries(); n < tried+2 {
				return fmt.Errorf("%d tries", n)
			}
			return nil
		})
		store.set(false)
		b.eventually(seen.reaches(2))
		b.awaitNoJobs()
		b.healthy(bridge)
		if n := len(b.letters()); n != 0 || seen.count() != 2 {
			t.Errorf("%d letters, %d calls", n, seen.count())
		}
	})
}

// A dead letter that cannot be written: the message stays, health says so, and the letter is written once it can be.
func TestLetter_that_cannot_be_written(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		b.target(bridge, "billing", quick(1), func(_ context.Context, env schema.Envelope) error {
			seen.add(env)
			return errFlaky
		})
		b.run(bridge)
		b.healthy(bridge)
		if err := b.js.DeleteStream(t.Context(), "MB_DEAD"); err != nil {
			t.Fatal(err)
		}
		job := schema.NewJob("billing", "x", []byte("body"))
		b.publish(bridge, job)
		if _, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: "mb.jobs.billing.foreign", Data: []byte("foreign")}); err != nil {
			t.Fatal(err)
		}
		b.unhealthy(bridge, patience, "write dead letter")
		b.eventually(seen.reaches(1))
		if n := b.waiting(schema.Jobs, "jobs.>"); n != 2 {
			t.Errorf("%d messages wait, want 2", n)
		}
		if err := jetstream.EnsureStreams(t.Context(), b.js, jetstream.StreamsConfig{}); err != nil {
			t.Fatal(err)
		}
		b.awaitNoJobs()
		letters := b.letters()
		if len(letters) != 2 || seen.count() != 1 {
			t.Fatalf("%d letters, %d calls", len(letters), seen.count())
		}
		for _, l := range letters {
			if string(l.Payload) == "body" && (l.Cause != schema.CauseExhausted || l.ID != job.ID || l.Attempts != 1 || l.Reason != "error: "+errFlaky.Error()) {
				t.Errorf("letter %+v", l.DeadLetter)
			}
		}
	})
}
