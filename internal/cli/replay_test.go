package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// faulty is a target that can be repaired. It remembers what it did.
type faulty struct {
	mu      sync.Mutex
	works   bool
	stub    map[string]bool // keys it never works for
	done    map[string][]schema.Envelope
	tries   map[string]int // attempts since the last repair
	attempt map[string]int // the number of the last attempt
}

func newFaulty() *faulty {
	return &faulty{stub: map[string]bool{}, done: map[string][]schema.Envelope{}, tries: map[string]int{}, attempt: map[string]int{}}
}

func (f *faulty) Handle(ctx context.Context, env schema.Envelope) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries[env.Key]++
	f.attempt[env.Key] = handlers.Attempt(ctx)
	switch {
	case !f.works:
		return handlers.Permanent(errors.New("out of order"))
	case f.stub[env.Key]:
		return errors.New("still out of order")
	}
	f.done[env.Key] = append(f.done[env.Key], env)
	return nil
}

func (f *faulty) repair(but ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.works, f.tries, f.stub = true, map[string]int{}, map[string]bool{}
	for _, key := range but {
		f.stub[key] = true
	}
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.done)
}

// TestC35_replay goes through the whole case: several pages of entries, a repaired target, replay of all, stopped halfway and run
// again, beside operators who replay and drop single entries.
func TestC35_replay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const n, rate, late = 300, 100, 295
		f := newFaulty()
		policy := quick(2)
		policy.Concurrency = 50
		w.bridge(t, nil, handlers.Target{Name: "crm", Handler: f, Policy: policy})
		envs := make([]schema.Envelope, n)
		for i := range envs {
			envs[i] = schema.NewJob("crm", "contact.update", map[string]int{"contact": i},
				schema.WithKey(fmt.Sprint("key-", i)), schema.WithMetadata(map[string]string{"n": fmt.Sprint(i)}))
		}
		err := w.store.Unit(t.Context(), func(u schema.Unit) error {
			_, err := u.Append(t.Context(), envs)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.given(t, n)
		f.repair(fmt.Sprint("key-", late)) // late in the list, so that only the second run reaches it

		// One entry is dropped and one replayed by another operator while all are replayed; the command is stopped halfway.
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		began := time.Now()
		all := []string{"poison", "replay", "--all", "--yes", "--rate", fmt.Sprint(rate)}
		first := make(chan result, 1)
		go func() { first <- callContext(ctx, "", nil, append(all, w.flags...)...) }()
		dropped := w.run(t, "poison", "drop", envs[n-1].ID)
		if dropped.code != 0 {
			t.Errorf("drop beside replay: %s", dropped)
		}
		other := w.run(t, "poison", "replay", envs[n-2].ID)
		if other.code != 0 {
			t.Errorf("replay beside replay: %s", other)
		}
		testkit.Eventually(t, patience(n), func() error {
			if done := f.count(); done < n/3 {
				return fmt.Errorf("%d done", done)
			}
			return nil
		})
		interrupt()
		r := <-first
		if r.code != 1 || !strings.Contains(r.stderr, "it goes on where it stopped") {
			t.Errorf("interrupted: exit code %d, %s", r.code, r.stderr)
		}
		halfway := strings.Count(r.stdout, "replayed ")
		if elapsed := time.Since(began); float64(halfway) > elapsed.Seconds()*rate+1 {
			t.Errorf("%d replays in %v are more than %d a second", halfway, elapsed, rate)
		}
		if halfway >= n-2 {
			t.Fatalf("%d replays: it was not stopped halfway", halfway)
		}
		w.must(t, all...)
		testkit.Eventually(t, patience(n), func() error {
			if done := f.count(); done != n-2 {
				return fmt.Errorf("%d done", done)
			}
			return nil
		})

		// The one that fails again is back, once, with a higher count; the budget of attempts was fresh.
		back := w.given(t, 1)[0]
		if back["replay"] != 1.0 || back["id"] != envs[late].ID || back["attempts"] != 2.0 {
			t.Errorf("back in the list: %v", back)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if key := envs[late].Key; f.tries[key] != 2 || f.attempt[key] != 2 {
			t.Errorf("%s had %d attempts after the repair, the last was number %d", key, f.tries[key], f.attempt[key])
		}
		for i, env := range envs {
			done := f.done[env.Key]
			switch {
			case i == late || i == n-1:
				if len(done) != 0 {
					t.Errorf("%s was handled", env.Key)
				}
			case len(done) != 1:
				t.Errorf("%s was handled %d times", env.Key, len(done))
			case string(done[0].Payload) != string(env.Payload) || fmt.Sprint(done[0].Metadata) != fmt.Sprint(env.Metadata) || done[0].Replay.Of != env.ID:
				t.Errorf("%s was handled as %+v", env.Key, done[0])
			}
		}
		contains(t, w.must(t, "show", envs[0].ID).stdout, "inbox of crm: done replay 1", "dead of crm: replayed (permanent) after 1 failed attempt", "out of order")
		contains(t, w.must(t, "show", envs[n-1].ID).stdout, "inbox of crm: dropped", "dead of crm: dropped")
	})
}
