package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// start runs a forwarder until the test or the returned function ends it; the function returns its error.
func start(t *testing.T, f *Forwarder) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = func() error {
		cancel()
		select {
		case err := <-done:
			done <- err
			return err
		case <-time.After(20 * time.Second):
			return errors.New("the forwarder does not stop")
		}
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func wantSent(t *testing.T, f *Forwarder, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := f.tally(); got.Sent != n {
			return fmt.Errorf("%d are sent, want %d: %+v", got.Sent, n, f.Status())
		}
		return nil
	})
}

// Where no stream listens, rows wait, whoever else listens there.
func TestC15_no_stream(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		listener, err := b.nc.Subscribe("mb.jobs.>", func(m *nats.Msg) { _ = m.Respond([]byte("thanks")) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Unsubscribe() }()
		want := jobs(0, 3)
		db.mustPublish(t, want...)
		db.mustPublish(t, schema.NewEvent("order.paid", 1))
		cfg := quick(t)
		cfg.AckTimeout = 300 * time.Millisecond
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		f := newForwarder(t, db, b.Conn(t), cfg)
		stop := start(t, f)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.Stream == schema.Jobs && (s.State != ShardWaiting || !strings.Contains(s.Error, "MB_JOBS") || !strings.Contains(s.Error, "mb.jobs.>")) {
					return fmt.Errorf("status does not name stream and subject: %+v", s)
				}
			}
			return nil
		})
		wantSent(t, f, 1)            // the event: its stream is there
		eventually(t, func() error { // it is removed a moment after it was counted as sent
			if rows, err := db.waiting(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 3 {
				return fmt.Errorf("%d rows wait (%v), want 3", len(rows), err)
			}
			return nil
		})
		if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
			t.Fatal(err)
		}
		wantSent(t, f, 4)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), `level=ERROR msg="shard waits"`) {
			t.Errorf("nobody is told that a person must act: %s", log.String())
		}
		if got := stored(t, b.js, "MB_JOBS"); len(got) != 3 {
			t.Errorf("%d jobs are stored, want 3", len(got))
		}
	})
}

// A stream that vanishes under a running forwarder stops the shards; nothing is sent to a new one without a word.
func TestForwarder_stream_deleted_while_running(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.Conn(t), quick(t))
		start(t, f)
		db.mustPublish(t, jobs(0, 20)...)
		wantSent(t, f, 20)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.InFlight > 0 {
					return fmt.Errorf("still %d in flight", s.InFlight)
				}
			}
			return nil
		})
		if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
			t.Fatal(err)
		}
		db.mustPublish(t, jobs(20, 20)...)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.Stream == schema.Jobs && (s.State != ShardStopped || s.Stop != StopStreamLost || s.Hint == "") {
					return fmt.Errorf("status is %+v", s)
				}
			}
			return nil
		})
		wantMessages(t, b.js, 0)
	})
}

// Connections that break with batches under way cost nothing but time.
func TestC18_connection_drops(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		nc := b.Conn(t)
		cfg := quick(t)
		cfg.BatchRows = 100
		f := newForwarder(t, db, nc, cfg)
		start(t, f)
		var want []schema.Envelope
		for i := range 20 {
			envs := jobs(100*i, 100, schema.WithOrderingKey("k"))
			want = append(want, envs...)
			db.mustPublish(t, envs...)
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		wantSent(t, f, len(want))
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("it took %v after the last drop", d)
		}
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.InFlight > 0 {
					return fmt.Errorf("still %d in flight", s.InFlight)
				}
			}
			return nil
		})
		wantStored(t, b, "MB_JOBS", want)
	})
}

func TestForwarder_broker_and_stream_restart(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.Conn(t), quick(t))
		start(t, f)
		first, second := jobs(0, 50, schema.WithOrderingKey("k")), jobs(50, 50, schema.WithOrderingKey("k"))
		db.mustPublish(t, first...)
		wantSent(t, f, 50)
		b.Stop()
		db.mustPublish(t, second...)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.State == ShardWaiting && strings.Contains(s.Error, "NATS") {
					return nil
				}
			}
			return fmt.Errorf("no shard says that NATS is down: %+v", f.Status())
		})
		b.Restart()
		wantSent(t, f, 100)
		eventually(t, func() error { // the test's own connection may be back later
			_, err := b.js.Stream(t.Context(), "MB_JOBS")
			return err
		})
		wantStored(t, b, "MB_JOBS", append(first, second...))
	})
}

// A forwarder may start before anything else is there.
func TestForwarder_starts_before_its_servers(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	b.Stop()
	nc, err := nats.Connect(b.URL(), append(ConnectOptions(), nats.ReconnectWait(50*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	db.mustPublish(t, jobs(0, 1)...)
	f := newForwarder(t, db, nc, quick(t))
	start(t, f)
	eventually(t, func() error {
		for _, s := range f.Status() {
			if s.State == ShardWaiting {
				return nil
			}
		}
		return errors.New("no shard waits")
	})
	b.Restart()
	wantSent(t, f, 1)
}

// A server that has refused us any number of times may let us in one day, before the first connection and after it.
func TestConnectOptions_go_on_where_they_are_not_let_in(t *testing.T) {
	t.Parallel()
	b := testkit.NATS(t, func(o *server.Options) { o.Username, o.Password = "bridge", "one" })
	password := func(to string) { b.Reload(func(o *server.Options) { o.Password = to }) }
	var tries atomic.Int64
	nc, err := nats.Connect(b.URL(), append(ConnectOptions(), nats.UserInfo("bridge", "two"),
		nats.CustomReconnectDelay(func(int) time.Duration {
			tries.Add(1)
			return 20 * time.Millisecond
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, when := range []string{"before it was in", "after it was in"} {
		least := tries.Load() + 5
		eventually(t, func() error {
			if n := tries.Load(); n < least {
				return fmt.Errorf("%s: %d tries, want %d; the connection is %v: %w", when, n, least, nc.Status(), nc.LastError())
			}
			return nil
		})
		password("two")
		eventually(t, func() error {
			if !nc.IsConnected() {
				return fmt.Errorf("%s: the connection is %v: %w", when, nc.Status(), nc.LastError())
			}
			return nil
		})
		password("three") // and out again
	}
}

func TestForwarder_closed_connection_ends_it_with_an_error(t *testing.T) {
	t.Parallel()
	db, b := openSQLite(t), openBroker(t)
	nc := b.Conn(t)
	f := newForwarder(t, db, nc, quick(t))
	done := make(chan error, 1)
	go func() { done <- f.Run(context.WithoutCancel(t.Context())) }()
	eventually(t, func() error {
		if s := f.Status(); len(s) == 0 || s[0].State != ShardRunning {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
	nc.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrConnectionClosed) {
			t.Errorf("got %v, want %v", err, ErrConnectionClosed)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on without a connection")
	}
	if _, err := f.DrainOnce(t.Context()); !errors.Is(err, ErrConnectionClosed) {
		t.Errorf("later: %v, want %v", err, ErrConnectionClosed)
	}
}

func TestNewForwarder_refuses_a_connection_that_lies(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	for name, opts := range map[string][]nats.Option{
		"keeps messages back": {nats.ReconnectBufSize(1 << 20)},
		"gives up":            {nats.MaxReconnects(10)},
		"never reconnects":    {nats.NoReconnect()},
	} {
		nc := b.Conn(t, opts...)
		if _, err := NewForwarder(openSQLite(t), nc, ForwarderConfig{}); err == nil || !strings.Contains(err.Error(), "jetstream.ConnectOptions()") {
			t.Errorf("a connection that %s: %v", name, err)
		}
	}
	if _, err := NewForwarder(openSQLite(t), b.nc, ForwarderConfig{EventTTL: time.Millisecond, BatchRows: 1000, Lease: 1}); err == nil ||
		!strings.Contains(err.Error(), "event TTL") || !strings.Contains(err.Error(), "batch rows") || !strings.Contains(err.Error(), "lease") {
		t.Errorf("got %v, want all three faults", err)
	}
}
