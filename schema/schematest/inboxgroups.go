package schematest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// groupStore is an inbox that deals with several runs at once.
type groupStore interface {
	Inbox
	Group(ctx context.Context, claims, done []schema.Run) (claimed []*schema.InboxRecord, noted []bool, err error)
}

// grouped is an inbox that claims and ends every run in a group with others, so that whatever holds for one run holds
// there, too.
type grouped struct{ groupStore }

// company returns runs of keys that nobody else uses.
func company() []schema.Run {
	runs := make([]schema.Run, 2)
	for i := range runs {
		runs[i] = newRun(schema.NewID())
		runs[i].Key.Key = schema.NewID()
	}
	return runs
}

func (g grouped) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	others := company()
	claimed, _, err := g.Group(ctx, []schema.Run{others[0], run, others[1]}, nil)
	if err != nil {
		return schema.ClaimResult{}, err
	}
	if claimed[0] == nil || claimed[2] == nil {
		return schema.ClaimResult{}, errors.New("a new key beside another was not claimed")
	}
	if _, noted, err := g.Group(ctx, nil, others); err != nil || !slices.Equal(noted, []bool{true, true}) {
		return schema.ClaimResult{}, fmt.Errorf("ended %v: %w", noted, err)
	}
	if claimed[1] == nil {
		return g.groupStore.Claim(ctx, run)
	}
	return schema.ClaimResult{Claim: schema.ClaimRun, Record: *claimed[1]}, nil
}

func (g grouped) Done(ctx context.Context, run schema.Run) error {
	others := company()
	claimed, noted, err := g.Group(ctx, others[:1], []schema.Run{others[1], run})
	if err != nil {
		return err
	}
	if claimed[0] == nil || noted[0] {
		return fmt.Errorf("beside another, a new key is claimed: %v, one that nobody runs is ended: %v", claimed[0] != nil, noted[0])
	}
	if !noted[1] {
		return g.groupStore.Done(ctx, run)
	}
	return nil
}

// testGroups has several processes claim and end the same keys in groups that cross each other, while they renew their
// leases: nobody waits for another in a circle, and no key is run twice at a time or after its end.
func testGroups(t *testing.T, in InboxHarness) {
	const keys, processes, rounds, each = 60, 4, 80, 40
	ctx := t.Context()
	run := func(process, key int) schema.Run {
		r := newRun(fmt.Sprintf("%d-%s", process, schema.NewID()))
		r.Key.Key, r.MessageID = fmt.Sprint(key), fmt.Sprint(key)
		return r
	}
	var mu sync.Mutex
	holder, ended := make(map[string]string), make(map[string]bool)
	var wg sync.WaitGroup
	for process := range processes {
		store, ok := []Inbox{in.Inbox, in.Another}[process%2].(groupStore)
		if !ok {
			t.Fatal("the inbox has no groups")
		}
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(process), 7))
			var mine []schema.Run
			for range rounds {
				var claims []schema.Run
				for _, key := range random.Perm(keys)[:each] {
					if !slices.ContainsFunc(mine, func(r schema.Run) bool { return r.Key.Key == fmt.Sprint(key) }) {
						claims = append(claims, run(process, key))
					}
				}
				// Of the odd ones there is no end: all others meet them while they are renewed.
				done, kept := split(mine)
				mu.Lock() // before the end, which lets nobody else in
				for _, r := range done {
					ended[r.Key.Key] = true
					delete(holder, r.Key.Key)
				}
				mu.Unlock()
				var renewal sync.WaitGroup
				renewal.Go(func() {
					if _, err := store.Extend(ctx, mine, time.Hour); err != nil {
						t.Errorf("extend: %v", err)
					}
				})
				claimed, noted, err := store.Group(ctx, claims, done)
				renewal.Wait()
				if err != nil {
					t.Errorf("group: %v", err)
					return
				}
				for i, ok := range noted {
					if !ok { // the renewal had its row
						if err := store.Done(ctx, done[i]); err != nil {
							t.Errorf("end %s: %v", done[i].Key.Key, err)
						}
					}
				}
				mine = kept
				mu.Lock()
				for i, rec := range claimed {
					if rec == nil {
						continue
					}
					key := claims[i].Key.Key
					if ended[key] || holder[key] != "" || rec.LeaseOwner != claims[i].Owner || rec.Key != claims[i].Key {
						t.Errorf("key %s was claimed as %+v: ended before: %v, in hands of %q", key, *rec, ended[key], holder[key])
					}
					holder[key] = claims[i].Owner
					mine = append(mine, claims[i])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ended) < keys/6 { // how many do depends on how often the processes meet
		t.Errorf("%d of %d keys have come to an end", len(ended), keys)
	}
}

// split returns the runs that end now, which is every other one of those that have an end, and the rest.
func split(runs []schema.Run) (done, kept []schema.Run) {
	for i, r := range runs {
		if n, _ := strconv.Atoi(r.Key.Key); n%2 == 0 && i%2 == 0 {
			done = append(done, r)
		} else {
			kept = append(kept, r)
		}
	}
	return done, kept
}
