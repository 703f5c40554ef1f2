package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func TestForwarder_drains_both_streams_in_order(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.nc, quick(t))
		const n = 1200
		var want []string
		for _, e := range jobs(0, n, schema.WithOrderingKey("one")) {
			want = append(want, e.ID)
			db.mustPublish(t, e, schema.NewEvent("order.paid", 1))
		}
		tally := drain(t, f)
		if want := (Tally{Claimed: 2 * n, Sent: 2 * n}); tally != want {
			t.Errorf("tally is %+v, want %+v", tally, want)
		}
		got := stored(t, b.js, "MB_JOBS")
		if len(got) != n {
			t.Fatalf("%d jobs are stored, want %d", len(got), n)
		}
		for i, m := range got {
			if m.id != want[i] {
				t.Fatalf("message %d is %s, want %s", i, m.id, want[i])
			}
		}
		if events := stored(t, b.js, "MB_EVENTS"); len(events) != n {
			t.Errorf("%d events are stored, want %d", len(events), n)
		}
		rows, err := db.waiting(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) != 0 {
			t.Errorf("outbox still has %d rows (%v), want none", len(rows), err)
		}
		if tally := drain(t, f); tally != (Tally{}) {
			t.Errorf("second drain says %+v, want nothing", tally)
		}
	})
}

func TestForwarder_what_is_sent(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		info, err := db.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		job := schema.NewJob("shop", "order.paid", []byte{0, 1, 2}, schema.WithKey("k"), schema.WithMetadata(map[string]string{"Trace Me": "no", "note": " ü\n"}))
		delete(job.Metadata, "Trace Me")
		event := schema.NewEvent("order.paid", map[string]int{"n": 1}, schema.WithPublic(), schema.WithTenant("t"))
		db.mustPublish(t, job, event)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		for stream, want := range map[string]schema.Envelope{"MB_JOBS": job, "MB_EVENTS": event} {
			got := stored(t, b.js, stream)
			if len(got) != 1 {
				t.Fatalf("%s holds %d messages", stream, len(got))
			}
			relative, ok := schema.Subjects{}.Relative(got[0].subject)
			if !ok {
				t.Fatalf("subject is %q", got[0].subject)
			}
			e, err := schema.Decode(relative, got[0].header, []byte(got[0].data))
			if err != nil {
				t.Fatal(err)
			}
			if e.ID != want.ID || e.Source != schema.SourceOf(info.ID) || !bytes.Equal(e.Payload, want.Payload) || e.IdempotencyKey() != want.IdempotencyKey() ||
				e.Metadata["note"] != want.Metadata["note"] || e.Tenant != want.Tenant || e.Name != want.Name || e.Kind != want.Kind {
				t.Errorf("got %+v, want %+v", e, want)
			}
			if ttl := got[0].header.Get("Nats-TTL"); (ttl == "168h0m0s") != (stream == "MB_EVENTS") || stream == "MB_JOBS" && ttl != "" {
				t.Errorf("a message in %s has the TTL %q", stream, ttl)
			}
		}
	})
}

// Each event ends its own life; the cursor of an idle shard does not, not even over a restart.
func TestForwarder_events_expire_and_cursors_do_not(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.EventTTL = time.Second
		f := newForwarder(t, db, b.nc, cfg)
		db.mustPublish(t, schema.NewEvent("short", 1))
		if tally := drain(t, f); tally.Sent != 1 { // it may be gone before anybody can look
			t.Fatalf("the tally is %+v, want 1 sent", tally)
		}
		eventually(t, func() error {
			if got := stored(t, b.js, "MB_EVENTS"); len(got) != 0 {
				return fmt.Errorf("%d events are still there", len(got))
			}
			return nil
		})
		b.Restart()
		testkit.Eventually(t, time.Minute, func() error { return b.nc.FlushTimeout(time.Second) })
		db.mustPublish(t, schema.NewEvent("next", 1))
		if tally := drain(t, f); tally.Sent != 1 {
			t.Errorf("after that the tally is %+v, want 1 sent", tally)
		}
	})
}

func TestForwarder_wakes_up_when_nudged(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.PollMin, cfg.PollMax = time.Minute, time.Minute
		f := newForwarder(t, db, b.nc, cfg)
		start(t, f)
		for i, nudge := range []func(){f.Nudge, func() { _ = b.nc.Publish(NudgeSubject(schema.Subjects{}), nil) }} {
			eventually(t, func() error {
				for _, s := range f.Status() {
					if s.State != ShardRunning {
						return fmt.Errorf("%s/%d is %s", s.Stream, s.Shard, s.State)
					}
				}
				if len(f.Status()) == 0 {
					return errors.New("no shards yet")
				}
				return nil
			})
			db.mustPublish(t, jobs(i, 1)...)
			eventually(t, func() error {
				nudge() // again and again: a look may just have ended before the commit
				if n := f.tally().Sent; n != i+1 {
					return fmt.Errorf("%d are sent", n)
				}
				return nil
			})
		}
	})
}

// A store whose looks are wrong: they find nothing, or fail.
type blind struct {
	Store
	err error
}

func (b blind) Peek(_ context.Context, looks []schema.Look) ([]schema.Sight, error) {
	return make([]schema.Sight, len(looks)), b.err
}

// A look only saves reads: rows flow whatever it says.
func TestForwarder_does_without_looks(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"they find nothing": nil, "they fail": errors.New("no look")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, b := openSQLite(t), openBroker(t)
			f := newForwarder(t, blind{db, err}, b.nc, quick(t))
			start(t, f)
			for i := range 3 {
				envs := jobs(i, 1)
				db.mustPublish(t, envs...)
				wantSent(t, f, i+1)
			}
		})
	}
}

// A store that counts looks.
type looks struct {
	Store
	n atomic.Int64
}

func (l *looks) Peek(ctx context.Context, asked []schema.Look) ([]schema.Sight, error) {
	l.n.Add(1)
	return l.Store.Peek(ctx, asked)
}

// A row that nobody tells of is looked for, much sooner than an idle shard reads.
func TestForwarder_looks_by_itself(t *testing.T) {
	t.Parallel()
	db, b := openSQLite(t), openBroker(t)
	counted := &looks{Store: db}
	start(t, newForwarder(t, counted, b.nc, quick(t)))
	eventually(t, func() error {
		if n := counted.n.Load(); n < 20 {
			return fmt.Errorf("%d looks", n)
		}
		return nil
	})
}

// A stop leaves nothing half done: what was sent is removed, and the leases are free at once.
func TestForwarder_stops_cleanly(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.Lease = time.Hour
		for round := range 3 {
			f := newForwarder(t, db, b.nc, cfg)
			stop := start(t, f)
			for i := range 20 {
				db.mustPublish(t, jobs(i, 50)...)
			}
			eventually(t, func() error {
				if f.tally().Sent == 0 {
					return errors.New("nothing is sent yet")
				}
				return nil
			})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			tally := f.tally()
			if tally.Claimed != tally.Sent {
				t.Errorf("round %d: tally is %+v, want all claimed rows sent", round, tally)
			}
			for _, s := range f.Status() {
				if s.State != ShardIdle || s.InFlight != 0 || s.Ledger != s.Batch {
					t.Errorf("round %d: %s/%d ends as %+v", round, s.Stream, s.Shard, s)
				}
			}
			rows, err := db.waiting(t.Context(), schema.RowFilter{Limit: 100_000})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := len(stored(t, b.js, "MB_JOBS")), 1000*(round+1)-len(rows); got != want {
				t.Errorf("round %d: %d are stored and %d wait", round, got, len(rows))
			}
		}
	})
}

// A stop is no error, however early it comes.
func TestForwarder_stopped_before_it_has_begun(t *testing.T) {
	t.Parallel()
	db, b := openSQLite(t), openBroker(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for range 50 {
		if err := newForwarder(t, db, b.nc, quick(t)).Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForwarder_scheduled_messages_are_sent_when_due(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.TendEvery = time.Hour // only the time it is due counts
		f := newForwarder(t, db, b.nc, cfg)
		due := time.Now().Add(700 * time.Millisecond)
		db.mustPublish(t, jobs(0, 1, schema.WithDueAt(due))...)
		start(t, f)
		wantSent(t, f, 1)
		if d := time.Since(due); d < 0 || d > 2*time.Second {
			t.Errorf("it was sent %v after its time", d)
		}
	})
}

func TestForwarder_DrainOnce_moves_one_batch_of_each_shard(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.BatchRows = 10
		f := newForwarder(t, db, b.nc, cfg)
		db.mustPublish(t, jobs(0, 25, schema.WithOrderingKey("one"))...)
		for _, want := range []int{10, 10, 5, 0} {
			tally, err := f.DrainOnce(t.Context())
			if err != nil || tally != (Tally{Claimed: want, Sent: want}) {
				t.Errorf("got %+v (%v), want %d sent", tally, err, want)
			}
		}
	})
}

// Two processes share the work by leases, and one takes over what the other gives back.
func TestForwarder_two_processes(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	cfg := quick(t)
	first, second := newForwarder(t, db, b.Conn(t), cfg), newForwarder(t, db, b.Conn(t), cfg)
	stopFirst := start(t, first)
	db.mustPublish(t, jobs(0, 100)...)
	wantSent(t, first, 100)
	start(t, second)
	eventually(t, func() error {
		for _, s := range second.Status() {
			if s.State != ShardStandby {
				return fmt.Errorf("%s/%d of the second is %s", s.Stream, s.Shard, s.State)
			}
		}
		if len(second.Status()) != 4 {
			return errors.New("no shards yet")
		}
		return nil
	})
	if tally, err := second.store.Shards(t.Context(), schema.Jobs); err != nil || tally[0].LeaseLeft <= 0 {
		t.Errorf("no lease is held: %+v (%v)", tally, err)
	}
	if err := stopFirst(); err != nil {
		t.Fatal(err)
	}
	db.mustPublish(t, jobs(100, 100)...)
	wantSent(t, second, 100)
	if got := stored(t, b.js, "MB_JOBS"); len(got) != 200 {
		t.Errorf("%d are stored, want 200", len(got))
	}
}

// A server that takes small messages only takes smaller cursors.
func TestForwarder_small_server(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		srv := testkit.NATS(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
		nc := srv.Conn(t)
		if err := EnsureStreams(t.Context(), testkit.JetStream(t, nc), StreamsConfig{}); err != nil {
			t.Fatal(err)
		}
		db := open(t)
		if err := db.limit(t.Context(), 20_000); err != nil {
			t.Fatal(err)
		}
		db.mustPublish(t, jobs(0, 6000, schema.WithOrderingKey("one"))...)
		if tally := drain(t, newForwarder(t, db, nc, quick(t))); tally != (Tally{Claimed: 6000, Sent: 6000}) {
			t.Errorf("tally is %+v, want all sent at their first try", tally)
		}
	})
}
