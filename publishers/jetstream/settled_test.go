package jetstream

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// After a removal whose outcome is unknown nothing is read until it has been made good: a database that comes back from
// a crash may give the number of a removed row to a new one, and reads leave out rows by their numbers.
func TestForwarder_settles_a_removal_before_it_reads(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		want := jobs(0, 30, schema.WithOrderingKey("one"))
		db.mustPublish(t, want...)
		store := &unsettled{Store: db, failures: 6, open: make(map[schema.ShardRef]bool)}
		cfg := quick(t)
		cfg.BatchRows = 10
		f := newForwarder(t, store, b.Conn(t), cfg)
		start(t, f)
		wantSent(t, f, len(want))
		wantStored(t, b, "MB_JOBS", want)
		store.mu.Lock()
		defer store.mu.Unlock()
		// One read may be under way beside the first removal that fails.
		if store.failures != 0 || store.early > 1 {
			t.Errorf("%d removals are still to fail, %d reads came before the removal was made good; want none", store.failures, store.early)
		}
	})
}

// unsettled is a store whose first removals fail without an answer.
type unsettled struct {
	Store

	mu       sync.Mutex
	failures int                      // to come
	open     map[schema.ShardRef]bool // the last removal failed
	early    int                      // reads while it was open
}

func (u *unsettled) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	u.mu.Lock()
	fail := u.failures > 0
	if fail {
		u.failures--
	}
	u.open[p.ShardRef] = fail
	u.mu.Unlock()
	if fail {
		return schema.RemoveResult{}, errors.New("the database went away")
	}
	return u.Store.Remove(ctx, p)
}

func (u *unsettled) NewReader(ref schema.ShardRef, shards int) Reader {
	return watched{u.Store.NewReader(ref, shards), u, ref}
}

type watched struct {
	Reader
	u   *unsettled
	ref schema.ShardRef
}

func (w watched) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	w.u.mu.Lock()
	if w.u.open[w.ref] {
		w.u.early++
	}
	w.u.mu.Unlock()
	return w.Reader.Read(ctx, p)
}
