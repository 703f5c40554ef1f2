package jetstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

var errCrashed = errors.New("this process has crashed")

// A chaosStore gives the shard to whoever asks, cuts removals in the middle and can crash with all that uses it.
type chaosStore struct {
	Store
	cut     float64 // share of removals that are cut
	crashed atomic.Bool
	removed atomic.Int64 // removals that were cut
}

func (c *chaosStore) err(err error) error {
	if c.crashed.Load() {
		return errCrashed
	}
	return err
}

// Acquire takes the lease for no time at all, so that everybody gets it.
func (c *chaosStore) Acquire(ctx context.Context, ref schema.ShardRef, token string, _ time.Duration) (schema.Shard, bool, error) {
	if c.crashed.Load() {
		return schema.Shard{}, false, errCrashed
	}
	return c.Store.Acquire(ctx, ref, token, 0)
}

// Renew says that every lease is held: only the fence is left.
func (c *chaosStore) Renew(_ context.Context, tokens []string, _ time.Duration) ([]string, error) {
	return tokens, c.err(nil)
}

func (c *chaosStore) Release(ctx context.Context, token string) error {
	if c.crashed.Load() {
		return errCrashed
	}
	return c.Store.Release(ctx, token)
}

func (c *chaosStore) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	if c.crashed.Load() {
		return schema.RemoveResult{}, errCrashed
	}
	if rand.Float64() < c.cut {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
		defer cancel()
		c.removed.Add(1)
	}
	res, err := c.Store.Remove(ctx, p)
	return res, c.err(err)
}

func (c *chaosStore) NewReader(ref schema.ShardRef, shards int) Reader {
	return chaosReader{c.Store.NewReader(ref, shards), c}
}

type chaosReader struct {
	Reader
	c *chaosStore
}

func (r chaosReader) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	if r.c.crashed.Load() {
		return nil, errCrashed
	}
	rows, err := r.Reader.Read(ctx, p)
	return rows, r.c.err(err)
}

// reckless keeps n forwarders on the same shards without any lease, each of which crashes after a while and is
// replaced, until ctx ends.
type reckless struct {
	store  Store
	url    string
	cut    float64
	cutter cutter
	faults faults

	crashes, removalsCut, sent atomic.Int64
}

func (r *reckless) run(ctx context.Context, t *testing.T, n int) {
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for ctx.Err() == nil {
				r.live(ctx, t)
			}
		})
	}
	group.Wait()
}

// live runs one forwarder until it crashes.
func (r *reckless) live(ctx context.Context, t *testing.T) {
	store := &chaosStore{Store: r.store, cut: r.cut}
	opts := append(ConnectOptions(), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	nc, err := nats.Connect(r.url, append(opts, r.cutter.options()...)...)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	f := newForwarder(t, store, nc, ForwarderConfig{
		Lease: time.Hour, RetryMax: 50 * time.Millisecond, PollMax: 10 * time.Millisecond, StopTimeout: time.Second,
		AckTimeout: []time.Duration{30 * time.Millisecond, 100 * time.Millisecond, time.Second}[rand.IntN(3)],
		faults:     r.faults,
	})
	life, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(life) }()
	enough := rand.IntN(150) // rows it sends before it crashes
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for life.Err() == nil && f.tally().Sent < enough {
		select {
		case <-life.Done():
		case <-tick.C:
		}
	}
	store.crashed.Store(true)
	cancel()
	nc.Close()
	<-done
	r.crashes.Add(1)
	r.removalsCut.Add(store.removed.Load())
	r.sent.Add(int64(f.tally().Sent))
}
