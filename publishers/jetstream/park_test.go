package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// maxMsgSize changes a stream's limit behind the forwarder's back.
func maxMsgSize(t *testing.T, b *broker, size int32) {
	t.Helper()
	s, err := b.js.Stream(t.Context(), "MB_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = size
	if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// small makes the payload limit fit a stream that takes small messages only.
func small(t *testing.T, db *database, b *broker) {
	t.Helper()
	if err := db.limit(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	maxMsgSize(t, b, schema.MaxHeaderBytes+200)
}

// large is a job that was accepted when the limit was higher.
func large(opts ...schema.Option) schema.Envelope {
	return schema.NewJob("shop", "large", bytes.Repeat([]byte("secret"), 10_000), opts...)
}

func wantParked(t *testing.T, db *database, want map[string]string) {
	t.Helper()
	rows, err := db.parked(t.Context(), schema.RowFilter{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, r := range rows {
		id := messageID(r.Row)
		got[id] = true
		reason, ok := want[id]
		if !ok || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s is parked because %q, want %q", id, r.Reason, reason)
		}
	}
	for id, reason := range want {
		if !got[id] {
			t.Errorf("%s is not parked (%s)", id, reason)
		}
	}
}

func wantStored(t *testing.T, b *broker, stream string, want []schema.Envelope) {
	t.Helper()
	got := stored(t, b.js, stream)
	if len(got) != len(want) {
		t.Errorf("%s holds %d messages, want %d", stream, len(got), len(want))
		return
	}
	for i, m := range got {
		if m.id != want[i].ID {
			t.Errorf("message %d of %s is %s, want %s", i, stream, m.id, want[i].ID)
			return
		}
	}
}

// One row that the server refuses does not hold back the others, and is parked whole.
func TestC02_one_failing_row(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		bad := large()
		good := jobs(0, 4, schema.WithOrderingKey("good"))
		db.mustPublish(t, bad)
		db.mustPublish(t, good...)
		small(t, db, b)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error)
		cfg := quick(t)
		cfg.Lease = time.Minute // nobody loses a shard, however busy the machine is: then each row is counted for certain
		forwarders := []*Forwarder{newForwarder(t, db, b.nc, cfg), newForwarder(t, db.replica, b.Conn(t), cfg)}
		for _, f := range forwarders {
			go func() { done <- f.Run(ctx) }()
		}
		eventually(t, func() error {
			rows, err := db.waiting(t.Context(), schema.RowFilter{})
			if err == nil && len(rows) > 0 {
				err = fmt.Errorf("%d rows wait", len(rows))
			}
			return err
		})
		stop()
		for range forwarders {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantStored(t, b, "MB_JOBS", good)
		wantParked(t, db, map[string]string{bad.ID: "too large"})
		var tally Tally
		for _, f := range forwarders {
			tally.add(f.tally())
		}
		if tally.Sent != 4 || tally.Parked != 1 || tally.Lost != 0 || tally.Claimed != tally.Sent+tally.Parked+tally.Retried {
			t.Errorf("tally is %+v", tally)
		}
	})
}

// A row is not parked while the stream takes no cursor either: then it is not the row's fault.
func TestPark_needs_a_cursor_that_is_taken(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		env := jobs(0, 1)[0]
		db.mustPublish(t, env)
		h := takeHand(t, db, b, env, faults{}).take()
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxMsgSize = 1
		if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		err = h.commit(t.Context(), h.stageRows(1))
		var refusal *commitError
		if !errors.As(err, &refusal) {
			t.Fatalf("a stream that takes one byte took the row: %v", err)
		}
		if err := h.refused(t.Context(), refusal); err == nil {
			t.Error("the row was dealt with although nothing can be sent")
		}
		wantParked(t, db, nil)
		if rows, err := db.waiting(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 1 {
			t.Errorf("%d rows wait (%v), want 1", len(rows), err)
		}
	})
}

// Rows that share the ordering key of a parked row wait behind it, and follow it in order when it is released.
func TestPark_followers_wait_behind(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		key := schema.WithOrderingKey("k")
		before, bad, behind, other := jobs(0, 3, key), large(key), jobs(3, 3, key), jobs(6, 2)
		db.mustPublish(t, before...)
		db.mustPublish(t, bad)
		db.mustPublish(t, behind...)
		db.mustPublish(t, other...)
		small(t, db, b)
		f := newForwarder(t, db, b.nc, quick(t))
		drain(t, f)
		if got := stored(t, b.js, "MB_JOBS"); len(got) != 5 {
			t.Fatalf("%d messages are stored, want those before the bad one and the others: 5", len(got))
		}
		drain(t, f)
		want := map[string]string{bad.ID: "too large"}
		for _, e := range behind {
			want[e.ID] = "behind"
		}
		wantParked(t, db, want)

		maxMsgSize(t, b, -1)
		rows, err := db.parked(t.Context(), schema.RowFilter{ID: bad.ID})
		if err != nil || len(rows) != 1 {
			t.Fatal(len(rows), err)
		}
		if n, err := db.release(t.Context(), rows[0].Name()); err != nil || n != 4 {
			t.Fatalf("released %d (%v), want 4", n, err)
		}
		drain(t, f)
		order := append(append(append([]schema.Envelope{}, before...), bad), behind...)
		i := 0
		for _, m := range stored(t, b.js, "MB_JOBS") {
			if i < len(order) && m.id == order[i].ID {
				i++
			}
		}
		if i != len(order) {
			t.Errorf("only the first %d of the key are there in order, want %d", i, len(order))
		}
	})
}

// Rows that nobody can decode or send go to where they can be seen, whatever their number, and never block.
func TestC03_rows_that_can_never_be_sent(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		want := make(map[string]string)
		id := func(n int) schema.UUID { return schema.UUID{15: byte(n), 14: byte(n >> 8), 0: 7} }
		header := schema.EncodeHeader(schema.NewJob("shop", "x", nil, schema.WithID("fine")))
		for i, r := range []schema.Row{
			{Header: []byte("\x00\x01 not a header"), Subject: "jobs.shop.x"},
			{Header: []byte{}, Subject: "jobs.shop.x"},
			{Header: []byte("x: y\r\n"), Subject: "jobs.shop.x"},
			{Header: append([]byte("Nats-Expected-Last-Msg-Id: x\r\n"), header...), Subject: "jobs.shop.x"},
			{Header: append([]byte("nats-rollup: all\r\n"), header...), Subject: "jobs.shop.x"},
			{Header: header, Subject: "jobs.shop.*"},
			{Header: header, Subject: "jobs..x"},
			{Header: header, Subject: "jobs.shop x"},
			{Header: header, Subject: "events.public.x"},
			{Header: header, Subject: "cursor.jobs.x"},
			{Header: header, Subject: "jobs." + strings.Repeat("x", 5000)},
		} {
			r.Stream, r.ID, r.Payload = schema.Jobs, id(i), []byte("secret")
			if err := db.insert(r); err != nil {
				t.Fatal(err)
			}
			want[messageID(r)] = "undecodable"
		}
		want["fine"] = "undecodable"
		good := jobs(0, 1)[0]
		db.mustPublish(t, good)
		var log bytes.Buffer
		cfg := quick(t)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		f := newForwarder(t, db, b.nc, cfg)
		tally := drain(t, f)
		if tally.Parked != 11 || tally.Sent != 1 || tally.Retried != 0 {
			t.Errorf("tally is %+v, want 11 parked at their first attempt and 1 sent", tally)
		}
		wantStored(t, b, "MB_JOBS", []schema.Envelope{good})
		wantParked(t, db, want)
		if strings.Contains(log.String(), "secret") {
			t.Error("the log shows a payload")
		}
		rows, err := db.parked(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) == 0 || string(rows[0].Payload) != "secret" {
			t.Errorf("the payload is not kept: %v", err)
		}
	})
}

func TestC03_as_many_bad_rows_as_a_batch_holds(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		const n = 41
		var envs []schema.Envelope
		for range n {
			envs = append(envs, schema.NewJob("shop", "large", make([]byte, schema.MaxHeaderBytes+200)))
		}
		db.mustPublish(t, envs...)
		good := jobs(0, 1)[0]
		db.mustPublish(t, good)
		if err := db.limit(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		cfg := quick(t)
		cfg.BatchRows = 20
		f := newForwarder(t, db, b.nc, cfg)
		maxMsgSize(t, b, schema.MaxHeaderBytes+100) // refused by the server, not by us
		start := time.Now()
		tally := drain(t, f)
		t.Logf("%d rows parked in %v (%d retried)", tally.Parked, time.Since(start).Round(time.Millisecond), tally.Retried)
		if tally.Parked != n || tally.Sent != 1 {
			t.Errorf("tally is %+v, want %d parked and 1 sent", tally, n)
		}
		wantStored(t, b, "MB_JOBS", []schema.Envelope{good})
	})
}

// A large row is refused at our side with its size and the limit, also when it was accepted under another limit.
func TestC03_too_large_for_the_server(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		if err := db.limit(t.Context(), 2<<20); err != nil {
			t.Fatal(err)
		}
		key := schema.WithOrderingKey("k")
		bad := schema.NewJob("shop", "large", make([]byte, 1<<20), key)
		db.mustPublish(t, append(jobs(0, 2), bad)...)
		f := newForwarder(t, db, b.nc, quick(t))
		if _, err := f.DrainOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "2097152") || !strings.Contains(err.Error(), "1015808") {
			t.Fatalf("limits that do not fit: %v, want an error that names both", err)
		}
		if s := f.Status()[0]; s.State != ShardWaiting || !strings.Contains(s.Error, "MB_JOBS") {
			t.Errorf("status is %s: %s", s.State, s.Error)
		}
		if err := db.limit(t.Context(), 500_000); err != nil {
			t.Fatal(err)
		}
		tally := drain(t, f)
		if want := (Tally{Claimed: 3, Sent: 2, Parked: 1}); tally != want {
			t.Errorf("tally is %+v, want %+v", tally, want)
		}
		wantParked(t, db, map[string]string{bad.ID: "too large: 10"})
	})
}

// Nothing is parked because of the state of the stream.
func TestPark_never_because_of_the_stream(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *natsjs.StreamConfig){
		"full":      func(c *natsjs.StreamConfig) { c.MaxMsgs = 1 },
		"full size": func(c *natsjs.StreamConfig) { c.MaxBytes = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, b := openSQLite(t), openBroker(t)
			s, err := b.js.Stream(t.Context(), "MB_JOBS")
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			change(&cfg)
			if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			want := jobs(0, 3)
			db.mustPublish(t, want...)
			ctx, stop := context.WithCancel(t.Context())
			f := newForwarder(t, db, b.nc, quick(t))
			done := make(chan error)
			go func() { done <- f.Run(ctx) }()
			eventually(t, func() error {
				st := f.Status()
				if len(st) == 0 || st[0].State != ShardWaiting {
					return fmt.Errorf("status is %+v", st)
				}
				if e := st[0].Error; !strings.Contains(e, "MB_JOBS") || !strings.Contains(e, "mb.cursor.jobs.") {
					return fmt.Errorf("the status does not name stream and subject: %s", e)
				}
				return nil
			})
			cfg.MaxMsgs, cfg.MaxBytes = -1, -1
			if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				if n := f.tally().Sent; n != 3 {
					return fmt.Errorf("%d sent", n)
				}
				return nil
			})
			if st := f.Status()[0]; st.State != ShardRunning || st.Error != "" || st.Parked != 0 {
				t.Errorf("status is %+v", st)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			wantStored(t, b, "MB_JOBS", want)
			wantParked(t, db, nil)
		})
	}
}
