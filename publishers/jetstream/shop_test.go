package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A shop commits messages and enters them into its book.
type shop struct {
	Store
	repair RepairStore
	t      testing.TB
	// deal runs a transaction that publishes envs and enters them, waits, and commits or not.
	deal func(ctx context.Context, envs []schema.Envelope, wait time.Duration, commit bool) error
	book *proof.Book
	// exec runs raw SQL.
	exec  func(query string, args ...any) error
	table string // what the names of tables begin with
	// lose takes all rows out of the outbox and gives the numbers from first on out again, as a database does that
	// loses its last commits.
	lose func(first int64) error
	// reset gives numbers of removed rows out again, as a database does that comes back from a crash.
	reset func(ctx context.Context) error
	pool  *pgxpool.Pool   // PostgreSQL only
	store *postgres.Store // PostgreSQL only
}

func openShop(t testing.TB) *shop {
	pool := testkit.Postgres(t)
	store := postgres.New(pool, postgres.Options{})
	t.Cleanup(store.Close)
	s := &shop{Store: StoreOf(store), repair: RepairStoreOf(store), book: proof.OnPostgres(pool), table: "millbridge.", t: t, pool: pool, store: store}
	s.open()
	s.exec = func(query string, args ...any) error {
		_, err := pool.Exec(context.WithoutCancel(t.Context()), query, args...)
		return err
	}
	s.lose = func(first int64) error {
		return errors.Join(s.exec(`DELETE FROM millbridge.outbox`), s.exec(`SELECT setval('millbridge.outbox_seq', $1, false)`, first))
	}
	s.deal = func(ctx context.Context, envs []schema.Envelope, wait time.Duration, commit bool) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := store.Append(ctx, tx, envs); err != nil {
			return err
		}
		if err := s.book.EnterPostgres(ctx, tx, envs...); err != nil {
			return err
		}
		<-time.After(wait)
		if !commit {
			return nil
		}
		return tx.Commit(ctx)
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
	s := &shop{Store: StoreOf(store), repair: RepairStoreOf(store), book: proof.OnSQLite(write, read), table: "millbridge_", t: t}
	s.open()
	s.exec = func(query string, args ...any) error {
		_, err := write.ExecContext(context.WithoutCancel(t.Context()), query, args...)
		return err
	}
	s.lose = func(first int64) error {
		return errors.Join(s.exec(`DELETE FROM millbridge_outbox`), s.exec(`UPDATE sqlite_sequence SET seq = $1 WHERE name = 'millbridge_outbox'`, first-1))
	}
	s.deal = func(ctx context.Context, envs []schema.Envelope, _ time.Duration, commit bool) error {
		tx, err := write.BeginTx(ctx, nil) // one writer at a time: to wait would only keep the others out
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := store.Append(ctx, tx, envs); err != nil {
			return err
		}
		if err := s.book.EnterSQLite(ctx, tx, envs...); err != nil {
			return err
		}
		if !commit {
			return nil
		}
		return tx.Commit()
	}
	s.reset = func(ctx context.Context) error {
		_, err := write.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM millbridge_outbox) WHERE name = 'millbridge_outbox'`)
		return err
	}
	return s
}

func (s *shop) open() {
	s.t.Helper()
	if err := s.book.Create(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
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

// repairLost answers for lost streams. Rows of which nobody can tell are sent again.
func (s *shop) repairLost(ctx context.Context, nc *nats.Conn, replicas int, f faults) (repaired bool, err error) {
	s.t.Helper()
	r, err := NewRepairer(s.repair, nc, ForwarderConfig{AckTimeout: time.Second, faults: f}, StreamsConfig{Replicas: replicas})
	if err != nil {
		return false, err
	}
	r.margin = 0 // one clock: the streams are as young as what they hold
	p, err := r.Plan(ctx, RepairOptions{StreamRecreated: true, Ambiguous: Resend})
	if err != nil || len(p.Lines) == 0 {
		return false, err
	}
	return true, r.Apply(ctx, p)
}

// check compares the committed messages with the streams, in which nothing was consumed, when nothing is left to send.
func (s *shop) check(ctx context.Context, js natsjs.JetStream) (rows int, found []string) {
	s.t.Helper()
	r, err := s.book.Check(ctx, js, schema.Subjects{})
	if err != nil {
		s.t.Fatal(err)
	}
	found = r.Faults(true)
	if r.Waiting > 0 {
		found = append(found, fmt.Sprintf("%d are left in the database", r.Waiting))
	}
	return r.Committed, found
}
