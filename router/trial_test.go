package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// trialStore is a store that may fail from the moment on that a message is put on trial.
type trialStore struct {
	testStore
	onTrial atomic.Bool
	fail    func(step string) bool
}

// answer returns what a caller hears after the step was done.
func (s *trialStore) answer(step string, err error) error {
	if err == nil && s.onTrial.Load() && s.fail(step) {
		return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w", step, schema.ErrReadOnly))
	}
	return err
}

func (s *trialStore) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	rec, err := s.testStore.Fail(ctx, run, f)
	if err != nil || f.Deliveries != 1<<62 {
		return rec, err
	}
	s.onTrial.Store(true)
	return rec, s.answer("mark", nil)
}

func (s *trialStore) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	if err := s.answer("claim", nil); err != nil {
		return schema.ClaimResult{}, err
	}
	return s.testStore.Claim(ctx, run)
}

func (s *trialStore) Unit(ctx context.Context, f func(schema.Unit) error) error {
	return s.testStore.Unit(ctx, func(u schema.Unit) error { return s.answer("commit", f(u)) })
}

// suspect puts a message into the stream that as many deliveries without a result have made suspect as the policy allows.
func (b *bench) suspect() schema.Envelope {
	b.Helper()
	job := b.forwardJob()
	b.handOutInVain("fragile", crashPolicy(handlers.ModeLease).OrDefault().MaxCrashes-1)
	return job
}

func (b *bench) onTrial(store router.Store, mode handlers.Mode, seen *calls) *router.Bridge {
	b.Helper()
	bridge := b.open(noForward, func(c *router.Config) { c.Store = store })
	b.target(bridge, "fragile", crashPolicy(mode), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	return bridge
}

// A message that the database has kept from its handler, or whose effect it has taken back, has not crashed in its trial.
func TestTrial_an_outage_is_no_crash(t *testing.T) {
	for name, c := range map[string]struct {
		mode  handlers.Mode
		step  string
		calls int
	}{
		"before the claim":               {handlers.ModeLease, "claim", 1},
		"before the mark is known":       {handlers.ModeLease, "mark", 1},
		"before the mark is known in tx": {handlers.ModeTx, "mark", 1},
		"before the commit":              {handlers.ModeTx, "commit", 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.suspect()
				var failed atomic.Bool
				store := &trialStore{testStore: b.store, fail: func(step string) bool { return step == c.step && failed.CompareAndSwap(false, true) }}
				var seen calls
				b.run(b.onTrial(store, c.mode, &seen))
				b.awaitNoJobs()
				if letters := b.letters(); len(letters) != 0 || seen.count() != c.calls || !failed.Load() {
					t.Errorf("%d calls, want %d; letters %+v", seen.count(), c.calls, letters)
				}
			})
		})
	}
}

// A stop in good order while the database keeps a message from its trial leaves no mark that would look like a crash.
func TestTrial_a_stop_is_no_crash(t *testing.T) {
	for name, c := range map[string]struct {
		mode handlers.Mode
		step string
	}{
		"before the claim":  {handlers.ModeLease, "claim"},
		"before the commit": {handlers.ModeTx, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				job := b.suspect()
				var failed atomic.Bool
				store := &trialStore{testStore: b.store, fail: func(step string) bool {
					fails := step == c.step
					failed.Store(failed.Load() || fails)
					return fails
				}}
				var seen calls
				stop := b.run(b.onTrial(store, c.mode, &seen))
				b.eventually(func() error {
					if !failed.Load() {
						return errors.New("no trial yet")
					}
					return nil
				})
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				recs, err := b.store.InboxByMessage(t.Context(), job.ID)
				if err != nil || len(recs) != 1 || recs[0].Deliveries != 1 || recs[0].LastError != "" {
					t.Errorf("after the stop the inbox has %+v, error %v", recs, err)
				}
				before := seen.count()
				b.run(b.onTrial(b.store, c.mode, &seen))
				b.awaitNoJobs()
				if letters := b.letters(); len(letters) != 0 || seen.count() != before+1 {
					t.Errorf("%d calls, want one after %d; letters %+v", seen.count(), before, letters)
				}
			})
		})
	}
}
