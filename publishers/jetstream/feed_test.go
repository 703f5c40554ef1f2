package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// A heap feeds messages that a test has put there, at most three at a time.
type heap struct {
	db *database

	mu   sync.Mutex
	envs []schema.Envelope
	err  error
}

func (*heap) Name() string { return "heap" }

func (h *heap) Feed(ctx context.Context) (schema.FeedResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(3, len(h.envs))
	if h.err != nil || n == 0 {
		return schema.FeedResult{}, h.err
	}
	if err := h.db.publish(ctx, h.envs[:n]...); err != nil {
		return schema.FeedResult{}, err
	}
	h.envs = h.envs[n:]
	return schema.FeedResult{Moved: n, Left: 1, More: len(h.envs) > 0}, nil
}

func (h *heap) put(envs ...schema.Envelope) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.envs = append(h.envs, envs...)
}

func (h *heap) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func TestFeed_is_drained(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(t testing.TB) *database) {
		db, b := open(t), openBroker(t)
		h := &heap{db: db}
		h.put(jobs(0, 10)...)
		cfg := quick(t)
		cfg.Feeds = []Feed{h}
		f := newForwarder(t, db, b.nc, cfg)
		tally, err := f.DrainOnce(t.Context())
		if err != nil || tally.Sent != 3 {
			t.Errorf("drain once: %+v, %v; want one step of the feed", tally, err)
		}
		if tally, err = f.Drain(t.Context()); err != nil || tally.Sent != 7 {
			t.Errorf("drain: %+v, %v", tally, err)
		}
		if st := f.Feeds(); len(st) != 1 || st[0].Name != "heap" || st[0].Moved != 10 || st[0].Left != 4 {
			t.Errorf("status: %+v", st)
		}
		// A feed that fails is an error, and holds nothing else back.
		db.mustPublish(t, jobs(10, 1)...)
		h.fail(errors.New("the heap is away"))
		if tally, err = f.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "heap: the heap is away") || tally.Sent != 1 {
			t.Errorf("drain with a feed that fails: %+v, %v", tally, err)
		}
		db.mustPublish(t, jobs(11, 1)...)
		if tally, err = f.DrainOnce(t.Context()); err == nil || tally.Sent != 1 {
			t.Errorf("drain once with a feed that fails: %+v, %v", tally, err)
		}
		if n := len(stored(t, b.js, "MB_JOBS")); n != 12 {
			t.Errorf("%d messages are in the stream, want 12", n)
		}
	})
}

func TestFeed_runs(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(t testing.TB) *database) {
		db, b := open(t), openBroker(t)
		h := &heap{db: db}
		h.fail(errors.New("the heap is away"))
		h.put(jobs(0, 10)...)
		cfg := quick(t)
		cfg.Feeds = []Feed{h}
		f := newForwarder(t, db, b.nc, cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		testkit.Eventually(t, time.Minute, func() error {
			if st := f.Feeds()[0]; st.Error != "the heap is away" || st.ErrorAt.IsZero() {
				return errors.New("the status does not say that the feed fails")
			}
			return nil
		})
		h.fail(nil)
		sent := func(n int) {
			t.Helper()
			testkit.Eventually(t, time.Minute, func() error {
				if len(stored(t, b.js, "MB_JOBS")) != n {
					return errors.New("not all is sent")
				}
				return nil
			})
		}
		sent(10)
		if st := f.Feeds()[0]; st.Error != "" || st.Moved != 10 {
			t.Errorf("status: %+v", st)
		}
		h.put(jobs(10, 5)...)
		sent(15)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
