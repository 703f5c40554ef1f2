package postgres_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// A writer that holds an ordering key holds back that key's scheduled messages, all of them, and no others.
func TestTend_leaves_out_keys_that_writers_hold(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	due := func(id, key string, ago time.Duration) schema.Envelope {
		opts := []schema.Option{schema.WithDueAt(time.Now().Add(time.Hour - ago))}
		if key != "" {
			opts = append(opts, schema.WithOrderingKey(key))
		}
		return job(id, opts...)
	}
	setupTx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, setupTx, due("a1", "a", 9*time.Minute), due("a2", "a", 8*time.Minute), due("a3", "a", 7*time.Minute),
		due("b1", "b", 6*time.Minute), due("b2", "b", 5*time.Minute), due("c1", "c", 4*time.Minute), due("x", "", 3*time.Minute))
	commit(t, setupTx)
	if err := age(t.Context(), pool, time.Hour); err != nil {
		t.Fatal(err)
	}
	writer := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, writer, job("a0", schema.WithOrderingKey("a")), job("b0", schema.WithOrderingKey("b")))
	tend := func(limit, want int) {
		t.Helper()
		res, err := s.Tend(t.Context(), limit)
		if err != nil || res.Moved != want || res.NextDue <= 0 || res.NextDue > time.Second {
			t.Fatalf("%+v, %v; want %d moved and the rest soon", res, err, want)
		}
	}
	tend(1, 1)
	tend(2, 1)
	tend(2, 0)
	if got, want := outbox(t, s), []string{"c1", "x"}; !slices.Equal(got, want) {
		t.Fatalf("outbox %v, want %v", got, want)
	}
	commit(t, writer)
	if res, err := s.Tend(t.Context(), 100); err != nil || res.Moved != 5 || res.NextDue != 0 {
		t.Fatalf("%+v, %v; want all moved", res, err)
	}
	if got, want := outbox(t, s), []string{"a0", "b0", "c1", "x", "a1", "a2", "a3", "b1", "b2"}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}

// A message that is being cancelled or rescheduled is left alone, and the canceller need not wait for the upkeep.
func TestTend_beside_a_cancellation(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	setupTx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, setupTx, job("1", schema.WithDueAt(time.Now().Add(time.Hour))), job("2", schema.WithDueAt(time.Now().Add(time.Hour))))
	commit(t, setupTx)
	if err := age(t.Context(), pool, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	if err := s.Cancel(t.Context(), tx, "1"); err != nil {
		t.Fatal(err)
	}
	if res, err := s.Tend(t.Context(), 10); err != nil || res.Moved != 1 {
		t.Fatalf("%+v, %v; want the other message moved", res, err)
	}
	commit(t, tx)
	if res, err := s.Tend(t.Context(), 10); err != nil || res.Moved != 0 {
		t.Fatalf("%+v, %v; want nothing left", res, err)
	}
	if got, want := outbox(t, s), []string{"2"}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}

// Any number of processes may do the upkeep: each scheduled message moves once, in order.
func TestTend_in_many_processes(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	var envs []schema.Envelope
	var want []string
	for range 200 {
		e := schema.NewJob("crm", "a", nil, schema.WithOrderingKey("k"), schema.WithDueAt(time.Now().Add(time.Hour)))
		envs, want = append(envs, e), append(want, e.ID)
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, envs...)
	commit(t, tx)
	if err := age(t.Context(), pool, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				res, err := s.Tend(t.Context(), 7)
				if err != nil {
					t.Error(err)
				}
				if err != nil || res.NextDue == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	if got := outbox(t, s); !slices.Equal(got, want) {
		t.Errorf("%d messages, want all %d in order", len(got), len(want))
	}
}

// A key that a writer holds is parked later, when it is free: a new row of it may be on the way.
func TestTend_parks_nothing_of_a_key_that_a_writer_holds(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, job("1", schema.WithOrderingKey("k")), job("2", schema.WithOrderingKey("k")))
	commit(t, tx)
	rows, err := s.ListOutbox(t.Context(), schema.RowFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Acquire(t.Context(), wholeStream, "me", time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.Park(t.Context(), schema.ParkParams{ShardRef: wholeStream, Owner: "me", Name: rows[0].Name(), Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	writer := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, writer, job("3", schema.WithOrderingKey("k")))
	if res, err := s.Tend(t.Context(), 10); err != nil || res.Parked != 0 {
		t.Fatalf("%+v, %v; want nothing parked yet", res, err)
	}
	// Releasing waits for the writer, so that its row comes last.
	var n int
	var wg sync.WaitGroup
	wg.Go(func() { n, err = s.ReleaseParked(t.Context(), rows[0].Name()) })
	blocked(t, pool, 1)
	commit(t, writer)
	wg.Wait()
	if err != nil || n != 3 {
		t.Fatalf("%d rows released, %v; want 3", n, err)
	}
	if got, want := outbox(t, s), []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}
