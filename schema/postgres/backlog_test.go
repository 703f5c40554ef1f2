package postgres_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// fill writes n plain rows at once; what matters is that there are many.
func fill(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		INSERT INTO millbridge.outbox (stream, slot, id, subject, header, payload)
		SELECT 'jobs', (random() * 65535)::integer, gen_random_uuid(), 'jobs.crm.create', convert_to(repeat('h', 250), 'UTF8'), convert_to(repeat('p', 250), 'UTF8')
		  FROM generate_series(1, $1::integer)`, n)
	if err != nil {
		t.Fatal(err)
	}
}

// median reads a few times and returns the time that half of the reads took at most.
func median(t *testing.T, r *postgres.Reader, want int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 21 {
		began := time.Now()
		rows, err := r.Read(t.Context(), schema.ReadParams{})
		if err != nil || len(rows) < want {
			t.Fatalf("%d rows, %v; want %d", len(rows), err, want)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func large() int {
	if os.Getenv("MILLBRIDGE_STRESS") != "" {
		return 50
	}
	return 1
}

// What a read costs grows with what waits for it, not with what was sent, while an old snapshot keeps all of it.
func TestC31_history_costs_nothing(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	s := postgres.New(pool, postgres.Options{})
	r := newTail(t, s)
	fill(t, pool, 10_000)
	fresh := median(t, s.NewReader(wholeStream, 1), schema.MaxBatchRows)

	old := begin(t, pool, pgx.RepeatableRead)
	if _, err := old.Exec(t.Context(), `SELECT 1 FROM millbridge.meta`); err != nil {
		t.Fatal(err)
	}
	for range 20 * large() {
		if _, err := pool.Exec(t.Context(), `DELETE FROM millbridge.outbox`); err != nil {
			t.Fatal(err)
		}
		fill(t, pool, 5_000)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM millbridge.outbox`); err != nil {
		t.Fatal(err)
	}
	r.rest()
	fill(t, pool, 10_000)
	if after := median(t, r.Reader, schema.MaxBatchRows); after > 3*fresh+50*time.Millisecond {
		t.Errorf("a read takes %v after %d rows were sent, %v before", after, 100_000*large(), fresh)
	}
}

// However many rows wait, and whatever plan was good while there were few, a read and a removal touch their rows only.
func TestC31_backlog_after_a_quiet_time(t *testing.T) {
	t.Parallel()
	pool := repool(t, testkit.Postgres(t), func(c *pgxpool.Config) { c.MaxConns = 1 }) // one session with all its plans
	s := postgres.New(pool, postgres.Options{})
	if _, ok, err := s.Acquire(t.Context(), wholeStream, "me", time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r := s.NewReader(wholeStream, 1)
	batch := int64(0)
	work := func() (reads, removals time.Duration) {
		t.Helper()
		reads = median(t, r, schema.MaxBatchRows)
		var took []time.Duration
		for range 11 {
			rows, err := r.Read(t.Context(), schema.ReadParams{MaxRows: 50})
			if err != nil {
				t.Fatal(err)
			}
			names := make([]schema.RowName, len(rows))
			for i, row := range rows {
				names[i] = row.Name()
			}
			batch++
			began := time.Now()
			res, err := s.Remove(t.Context(), schema.RemoveParams{ShardRef: wholeStream, Owner: "me", Batch: batch, Names: names})
			if err != nil || res.Removed != len(rows) {
				t.Fatalf("%+v, %v", res, err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return reads, took[len(took)/2]
	}
	fill(t, pool, 2000)
	if _, err := pool.Exec(t.Context(), `ANALYZE millbridge.outbox`); err != nil {
		t.Fatal(err)
	}
	scans := func() (n int) {
		t.Helper()
		flushStatistics(t, pool)
		err := pool.QueryRow(t.Context(), `SELECT seq_scan FROM pg_stat_all_tables WHERE relid = 'millbridge.outbox'::regclass`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := scans()
	read, removed := work()
	fill(t, pool, 100_000*large())
	bigRead, bigRemoved := work()
	if n := scans() - before; n != 0 {
		t.Errorf("the whole table was read %d times", n)
	}
	if bigRead > 3*read+50*time.Millisecond || bigRemoved > 3*removed+50*time.Millisecond {
		t.Errorf("a read takes %v with a backlog, %v without; a removal %v and %v", bigRead, read, bigRemoved, removed)
	}
}

// No method holds a connection while it waits for another.
func TestPool_of_one_connection(t *testing.T) {
	t.Parallel()
	pool := repool(t, testkit.Postgres(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := postgres.New(pool, postgres.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	work := func(f func() error) {
		go func() {
			for range 20 {
				if err := f(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	r := s.NewReader(wholeStream, 1)
	works := []func() error{
		func() error {
			return s.InTx(ctx, func(tx pgx.Tx) error {
				_, err := s.Append(ctx, tx, []schema.Envelope{schema.NewJob("crm", "a", nil, schema.WithKey(schema.NewID()))})
				return err
			})
		},
		func() error { _, err := r.Read(ctx, schema.ReadParams{}); return err },
		func() error { _, err := s.Tend(ctx, 10); return err },
		func() error { _, err := s.Claim(ctx, run(schema.NewID())); return err },
		func() error {
			return s.Unit(ctx, func(u schema.Unit) error { _, err := u.Claim(ctx, run(schema.NewID())); return err })
		},
		func() error { _, _, err := s.MigrateUp(ctx); return err },
		func() error { return s.Check(ctx) },
	}
	for _, f := range works {
		work(f)
	}
	for range works {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
