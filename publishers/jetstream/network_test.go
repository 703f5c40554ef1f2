package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/schema"
)

func through(t *testing.T, p *netproxy.Proxy) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(p.NATS(), append(ConnectOptions(), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Much to send over a network that is too slow for whole batches: they become smaller, so that rows come one after the other.
func TestForwarder_slow_network(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	const first, second, n = 10, 30, 50
	var envs []schema.Envelope
	for i := range n {
		envs = append(envs, schema.NewJob("crm", fmt.Sprintf("n%d", i), bytes.Repeat([]byte("x"), 50_000), schema.WithOrderingKey("one")))
	}
	p := netproxy.Start(t, b.URL())
	nc := through(t, p)
	p.Slow(netproxy.Pace{BytesPerSecond: 200_000})
	cfg := quick(t)
	cfg.AckTimeout, cfg.Lease = time.Second, time.Minute // 200 KB
	db.mustPublish(t, envs[:first]...)
	start(t, newForwarder(t, db, nc, cfg))
	await := func(what string, least, most int) {
		t.Helper()
		eventually(t, func() error {
			if got := len(stored(t, b.js, "MB_JOBS")); got < least || got > most {
				return fmt.Errorf("%s: %d of %d are stored", what, got, n)
			}
			return nil
		})
	}
	await("a batch whose answer came too late", first, first)
	db.mustPublish(t, envs[first:second]...)
	await("another one", second, second)
	db.mustPublish(t, envs[second:]...) // 1 MB, which fits into one batch
	await("batches have become smaller", second+1, n-1)
	p.Heal()
	await("all is well", n, n)
	wantStored(t, b, "MB_JOBS", envs)
}

// An owner whose network is dead and whose database is not leaves its shards to a process with a better network.
func TestForwarder_gives_shards_up_without_a_server(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	p := netproxy.Start(t, b.URL())
	cfg := quick(t)
	cfg.Lease, cfg.AckTimeout = time.Second, 500*time.Millisecond
	first := newForwarder(t, db, through(t, p), cfg)
	start(t, first)
	db.mustPublish(t, jobs(0, 10)...)
	wantSent(t, first, 10)
	second := newForwarder(t, db.replica, b.Conn(t), cfg)
	start(t, second)
	p.Swallow(netproxy.Both) // it looks open
	db.mustPublish(t, jobs(10, 10)...)
	eventually(t, func() error {
		if got := len(stored(t, b.js, "MB_JOBS")); got != 20 {
			return fmt.Errorf("%d are stored", got)
		}
		return nil
	})
}

// An idle shard notices that its cursor is gone, and lets a repair have it.
func TestForwarder_idle_and_the_stream_is_purged(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	f := newForwarder(t, db, b.Conn(t), quick(t))
	start(t, f)
	db.mustPublish(t, jobs(0, 10)...)
	wantSent(t, f, 10)
	s, err := b.js.Stream(t.Context(), "MB_JOBS")
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		for _, s := range f.Status() {
			if s.ShardRef.Stream == schema.Jobs && s.State != ShardStopped {
				return fmt.Errorf("shard %d is %s", s.Shard, s.State)
			}
		}
		return nil
	})
	r := newRepairer(t, db, b)
	apply(t, r, plan(t, r, RepairOptions{StreamRecreated: true}))
	db.mustPublish(t, jobs(10, 10)...)
	wantSent(t, f, 20)
}

// A stream that is missing is made anew by a repair while forwarders wait for it, each with its own first sequence.
func TestRepair_all_streams_are_missing(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	f := newForwarder(t, db, b.Conn(t), quick(t))
	start(t, f)
	db.mustPublish(t, append(jobs(0, 10), schema.NewEvent("x", nil))...)
	wantSent(t, f, 11)
	for _, name := range []string{"MB_JOBS", "MB_EVENTS", "MB_DEAD"} {
		if err := b.js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		for _, s := range f.Status() {
			if s.State != ShardWaiting || !strings.HasPrefix(s.Error, "the stream is missing: ") {
				return fmt.Errorf("%s shard %d is %s: %s", s.Stream, s.Shard, s.State, s.Error)
			}
		}
		return nil
	})
	r := newRepairer(t, db, b)
	opts := RepairOptions{StreamRecreated: true, Ambiguous: Resend}
	if p := plan(t, r, RepairOptions{}); len(p.Undecided) < 3 {
		t.Errorf("it asks only %q", p.Undecided)
	}
	eventually(t, func() error { return r.Apply(t.Context(), plan(t, r, opts)) })
	for _, name := range []string{"MB_JOBS", "MB_EVENTS", "MB_DEAD"} {
		s, err := b.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if first := s.CachedInfo().Config.FirstSeq; (first > sequenceMargin) != (name != "MB_DEAD") {
			t.Errorf("%s begins at %d", name, first)
		}
	}
	db.mustPublish(t, append(jobs(10, 10), schema.NewEvent("y", nil))...)
	wantSent(t, f, 22)
}

// The guard of the cursors is made again before a shard is taken up.
func TestForwarder_does_not_start_without_the_guard(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	if err := b.js.DeleteConsumer(t.Context(), "MB_JOBS", GuardName); err != nil {
		t.Fatal(err)
	}
	db.mustPublish(t, jobs(0, 1)...)
	drain(t, newForwarder(t, db, b.nc, quick(t)))
	if _, err := b.js.Consumer(t.Context(), "MB_JOBS", GuardName); err != nil {
		t.Error(err)
	}
	// Not where another consumer would eat cursors.
	if err := b.js.DeleteConsumer(t.Context(), "MB_JOBS", GuardName); err != nil {
		t.Fatal(err)
	}
	_, err := b.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{Durable: "eater", AckPolicy: natsjs.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	db.mustPublish(t, jobs(1, 1)...)
	f := newForwarder(t, db, b.nc, quick(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := f.Drain(ctx); err == nil {
		t.Error("it goes on beside a consumer of everything")
	}
	// Whoever starts gives up rather than wait for it to go away.
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); !errors.Is(err, ErrStreams) || !strings.Contains(err.Error(), "another consumer covers mb.cursor.>") {
		t.Errorf("beside a consumer of everything: %v", err)
	}
	if n := len(stored(t, b.js, "MB_JOBS")); n != 1 {
		t.Errorf("%d are stored", n)
	}
}
