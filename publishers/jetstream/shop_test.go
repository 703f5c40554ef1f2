package jetstream

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A shop commits messages together with a record of them, and knows in which order those of a key committed.
type shop struct {
	Store
	repair RepairStore
	t      testing.TB
	// deal runs a transaction that publishes and records envs, waits, and commits or not.
	deal func(ctx context.Context, envs []schema.Envelope, wait time.Duration, commit bool) error
	// records reads the records, by key and in the order of commits within it.
	records func(ctx context.Context) ([]record, error)
	// reset gives numbers of removed rows out again, as a database does that comes back from a crash.
	reset   func(ctx context.Context) error
	waiting func(ctx context.Context, f schema.RowFilter) ([]schema.Row, error)
	pool    *pgxpool.Pool   // PostgreSQL only
	store   *postgres.Store // PostgreSQL only
}

// A record says that a message was committed; key is empty for messages without order.
type record struct {
	id, key string
	n       int64
}

const (
	createTruth = `CREATE TABLE truth (id text PRIMARY KEY, key text NOT NULL, n bigint NOT NULL)`
	// The key's lock is held until the commit, so the count within a key is the order of commits.
	insertTruth = `INSERT INTO truth SELECT $1, $2, CASE WHEN $2 = '' THEN 0 ELSE (SELECT count(*) FROM truth WHERE key = $2) END`
	selectTruth = `SELECT id, key, n FROM truth ORDER BY key, n`
)

func truthKey(e schema.Envelope) string {
	if e.OrderingKey == "" {
		return ""
	}
	return string(e.Stream()) + "/" + e.OrderingKey
}

func openShop(t testing.TB) *shop {
	pool := testkit.Postgres(t)
	store := postgres.New(pool, postgres.Options{})
	t.Cleanup(store.Close)
	if _, err := pool.Exec(t.Context(), createTruth); err != nil {
		t.Fatal(err)
	}
	s := &shop{Store: StoreOf(store), repair: RepairStoreOf(store), t: t, pool: pool, store: store, waiting: store.ListOutbox}
	s.deal = func(ctx context.Context, envs []schema.Envelope, wait time.Duration, commit bool) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := store.Append(ctx, tx, envs); err != nil {
			return err
		}
		for _, e := range envs {
			if _, err := tx.Exec(ctx, insertTruth, e.ID, truthKey(e)); err != nil {
				return err
			}
		}
		<-time.After(wait)
		if !commit {
			return nil
		}
		return tx.Commit(ctx)
	}
	s.records = func(ctx context.Context) ([]record, error) {
		rows, err := pool.Query(ctx, selectTruth)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r record, err error) {
			return r, row.Scan(&r.id, &r.key, &r.n)
		})
	}
	s.reset = func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for _, statement := range []string{
				`LOCK TABLE millbridge.outbox IN EXCLUSIVE MODE`,
				`SELECT setval('millbridge.outbox_seq', (SELECT coalesce(max(seq), 0) + 1 FROM millbridge.outbox), false)`,
				`UPDATE millbridge.epoch SET token = gen_random_uuid()`,
			} {
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return s
}

func openSQLiteShop(t testing.TB) *shop {
	write, read := testkit.SQLite(t)
	store := sqlite.New(write, read, sqlite.Options{})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := write.ExecContext(t.Context(), createTruth); err != nil {
		t.Fatal(err)
	}
	s := &shop{Store: StoreOf(store), repair: RepairStoreOf(store), t: t, waiting: store.ListOutbox}
	s.deal = func(ctx context.Context, envs []schema.Envelope, _ time.Duration, commit bool) error {
		tx, err := write.BeginTx(ctx, nil) // one writer at a time: to wait would only keep the others out
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := store.Append(ctx, tx, envs); err != nil {
			return err
		}
		for _, e := range envs {
			if _, err := tx.ExecContext(ctx, insertTruth, e.ID, truthKey(e)); err != nil {
				return err
			}
		}
		if !commit {
			return nil
		}
		return tx.Commit()
	}
	s.records = func(ctx context.Context) ([]record, error) {
		rows, err := read.QueryContext(ctx, selectTruth)
		if err != nil {
			return nil, err
		}
		return scanRecords(rows)
	}
	s.reset = func(ctx context.Context) error {
		_, err := write.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM millbridge_outbox) WHERE name = 'millbridge_outbox'`)
		return err
	}
	return s
}

func scanRecords(rows *sql.Rows) (all []record, err error) {
	defer rows.Close()
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.id, &r.key, &r.n); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// trade commits and rolls back transactions until ctx ends.
func (s *shop) trade(ctx context.Context, writers int, pause time.Duration) {
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for ctx.Err() == nil {
				s.transaction(context.WithoutCancel(ctx))
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * pause)):
				}
			}
		})
	}
	group.Wait()
}

// transaction publishes some messages, half of them ordered, and commits four times out of five, sometimes late.
func (s *shop) transaction(ctx context.Context) {
	key := ""
	if rand.IntN(2) == 0 {
		key = fmt.Sprintf("key-%d", rand.IntN(12))
	}
	var envs []schema.Envelope
	for range 1 + rand.IntN(8) {
		if rand.IntN(2) == 0 {
			envs = append(envs, schema.NewJob("shop", "order.paid", 1, schema.WithOrderingKey(key)))
		} else {
			envs = append(envs, schema.NewEvent("order.paid", 1, schema.WithOrderingKey(key)))
		}
	}
	var wait time.Duration
	if rand.IntN(10) == 0 {
		wait = rand.N(20 * time.Millisecond)
	}
	if err := s.deal(ctx, envs, wait, rand.IntN(5) > 0); err != nil {
		s.t.Error(err)
	}
}

// check compares the committed messages with the streams, in which nothing was consumed.
func (s *shop) check(ctx context.Context, js natsjs.JetStream) (rows int, found []string) {
	s.t.Helper()
	places := make(map[string][]uint64)
	for _, stream := range []string{"MB_JOBS", "MB_EVENTS"} {
		for _, m := range stored(s.t, js, stream) {
			places[m.id] = append(places[m.id], m.seq)
		}
	}
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	records, err := s.records(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	var last string
	var lastSeq uint64
	for _, r := range records {
		at := places[r.id]
		delete(places, r.id)
		if len(at) != 1 {
			fault("%s is stored %d times", r.id, len(at))
			continue
		}
		if r.key != "" {
			if r.key == last && at[0] < lastSeq {
				fault("%s (%s, number %d) overtook the message before it", r.id, r.key, r.n)
			}
			last, lastSeq = r.key, at[0]
		}
	}
	for id := range places {
		fault("%s was never committed", id)
	}
	return len(records), found
}
