package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

var errRolledBack = errors.New("rolled back on purpose")

// A load is many writers on one database, some of which commit late or not at all, and readers of all shards that
// remove what they have read. Each message of an ordering key carries the key's next number, counted in the same
// transaction, so that the numbers that arrive must be 1, 2, 3, ...
type load struct {
	store   *postgres.Store
	pool    *pgxpool.Pool
	keys    int
	rows    int // of one transaction, at most
	late    time.Duration
	written atomic.Int64 // rows committed

	mu      sync.Mutex
	next    map[string]int
	arrived map[schema.UUID]int
	reads   []time.Duration
	faults  []error
}

func newLoad(tb testing.TB, pool *pgxpool.Pool, keys, rows int, late time.Duration) *load {
	tb.Helper()
	_, err := pool.Exec(tb.Context(), `CREATE TABLE counters (key text PRIMARY KEY, n integer NOT NULL)`)
	if err != nil {
		tb.Fatal(err)
	}
	return &load{
		store: postgres.New(pool, postgres.Options{}), pool: pool, keys: keys, rows: rows, late: late,
		next: make(map[string]int), arrived: make(map[schema.UUID]int),
	}
}

// write runs transactions until ctx ends: one in three about an ordering key, one in twenty rolled back, one in fifty
// late.
func (l *load) write(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.writeOne(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, errRolledBack) {
			return err
		}
	}
	return nil
}

func (l *load) writeOne(ctx context.Context) error {
	n := 1 + rand.IntN(l.rows)
	err := l.store.InTx(ctx, func(tx pgx.Tx) error {
		envs := make([]schema.Envelope, n)
		key, first := "", 0
		if rand.IntN(3) == 0 {
			key = fmt.Sprint("key", rand.IntN(l.keys))
			err := tx.QueryRow(ctx, `INSERT INTO counters VALUES ($1::text, $2::integer)
				ON CONFLICT (key) DO UPDATE SET n = counters.n + excluded.n RETURNING n`, key, n).Scan(&first)
			if err != nil {
				return err
			}
			first -= n
		}
		for i := range envs {
			var opts []schema.Option
			if key != "" {
				opts = append(opts, schema.WithOrderingKey(key), schema.WithMetadata(map[string]string{"n": fmt.Sprint(first + i + 1)}))
			}
			envs[i] = schema.NewJob("crm", "create", []byte(`{"some":"payload of an ordinary size, which is about a hundred bytes or a few more"}`), opts...)
		}
		if _, err := l.store.Append(ctx, tx, envs); err != nil {
			return err
		}
		if key == "" && rand.IntN(50) == 0 {
			<-time.After(rand.N(l.late))
		}
		if rand.IntN(20) == 0 {
			return errRolledBack
		}
		return nil
	})
	if err == nil {
		l.written.Add(int64(n))
	}
	return err
}

// read works on one shard until ctx ends and nothing is left.
func (l *load) read(ctx context.Context, shard, shards int) error {
	whole := context.WithoutCancel(ctx)
	ref := schema.ShardRef{Stream: schema.Jobs, Generation: 1, Shard: shard}
	owner := fmt.Sprint("owner", shard)
	if _, ok, err := l.store.Acquire(whole, ref, owner, time.Hour); err != nil || !ok {
		return fmt.Errorf("acquire: %v, %w", ok, err)
	}
	r := l.store.NewReader(ref, shards)
	var sent [][]schema.RowName // batches in flight, oldest first
	batch, total := int64(0), int64(0)
	for {
		over := ctx.Err() != nil
		var exclude []int64
		for _, b := range sent {
			for _, n := range b {
				exclude = append(exclude, n.Seq)
			}
		}
		began := time.Now()
		rows, err := r.Read(whole, schema.ReadParams{Exclude: exclude})
		if err != nil {
			return err
		}
		l.arrive(rows, time.Since(began))
		if len(rows) > 0 {
			names := make([]schema.RowName, len(rows))
			for i, row := range rows {
				names[i] = row.Name()
			}
			sent = append(sent, names)
		}
		if len(sent) >= 3 || len(rows) == 0 && len(sent) > 0 {
			batch++
			total += int64(len(sent[0]))
			res, err := l.store.Remove(whole, schema.RemoveParams{ShardRef: ref, Owner: owner, Batch: batch, Total: total, Names: sent[0]})
			if err != nil || res.Removed != len(sent[0]) {
				return fmt.Errorf("remove %d rows: %+v, %w", len(sent[0]), res, err)
			}
			sent = sent[1:]
		}
		if len(rows) == 0 && len(sent) == 0 {
			if over {
				return nil
			}
			<-time.After(2 * time.Millisecond)
		}
	}
}

func (l *load) arrive(rows []schema.Row, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, took)
	for _, row := range rows {
		l.arrived[row.ID]++
		e, err := row.Envelope()
		if err != nil {
			l.faults = append(l.faults, err)
			continue
		}
		if e.OrderingKey == "" {
			continue
		}
		l.next[e.OrderingKey]++
		if want := fmt.Sprint(l.next[e.OrderingKey]); e.Metadata["n"] != want && len(l.faults) < 10 {
			l.faults = append(l.faults, fmt.Errorf("%s: message %s, want %s", e.OrderingKey, e.Metadata["n"], want))
		}
	}
}

// run lets writers work for a time, with an old snapshot open, and readers until all is read.
func (l *load) run(tb testing.TB, writers int, d time.Duration) {
	tb.Helper()
	old, err := l.pool.BeginTx(tb.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		tb.Fatal(err)
	}
	defer old.Rollback(context.Background()) //nolint:errcheck // the test is over
	var one int
	if err := old.QueryRow(tb.Context(), `SELECT 1 FROM millbridge.meta`).Scan(&one); err != nil {
		tb.Fatal(err)
	}

	writing, stop := context.WithTimeout(tb.Context(), d)
	defer stop()
	reading, done := context.WithCancel(tb.Context())
	defer done()
	var writes, reads sync.WaitGroup
	for shard := range 2 {
		reads.Go(func() {
			if err := l.read(reading, shard, 2); err != nil {
				tb.Errorf("reader %d: %v", shard, err)
			}
		})
	}
	for range writers {
		writes.Go(func() {
			if err := l.write(writing); err != nil {
				tb.Errorf("writer: %v", err)
			}
		})
	}
	writes.Wait()
	done()
	reads.Wait()
}

// check compares what has arrived with what was committed.
func (l *load) check(tb testing.TB) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fault := range l.faults {
		tb.Error(fault)
	}
	if int64(len(l.arrived)) != l.written.Load() {
		tb.Errorf("%d messages arrived, %d were committed", len(l.arrived), l.written.Load())
	}
	for id, n := range l.arrived {
		if n != 1 {
			tb.Errorf("message %s arrived %d times", id, n)
		}
	}
	var left int
	if err := l.pool.QueryRow(context.Background(), `SELECT count(*) FROM millbridge.outbox`).Scan(&left); err != nil || left != 0 {
		tb.Errorf("%d rows are left, %v", left, err)
	}
}

// percentile returns the p-th part of the reads' times.
func (l *load) percentile(p float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reads) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.reads))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func TestReader_reads_every_commit_once_and_in_order(t *testing.T) {
	t.Parallel()
	l := newLoad(t, testkit.Postgres(t), 20, 20, 300*time.Millisecond)
	l.run(t, 12, 3*time.Second)
	l.check(t)
	if l.written.Load() < 100 {
		t.Errorf("only %d messages were written", l.written.Load())
	}
	t.Logf("%d messages, %d reads, median %v, 99 %% within %v", l.written.Load(), len(l.reads), l.percentile(0.5), l.percentile(0.99))
}

// BenchmarkReader writes in bulk for as many rows as asked for and reports how long a read takes meanwhile.
func BenchmarkReader(b *testing.B) {
	l := newLoad(b, testkit.Postgres(b), 200, 200, 500*time.Millisecond)
	d := 10 * time.Second
	b.ResetTimer()
	l.run(b, 12, d)
	b.StopTimer()
	l.check(b)
	b.ReportMetric(float64(l.written.Load())/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(l.percentile(0.5).Microseconds())/1000, "ms/read(median)")
	b.ReportMetric(float64(l.percentile(0.99).Microseconds())/1000, "ms/read(p99)")
}
