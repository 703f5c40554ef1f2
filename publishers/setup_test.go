package publishers_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// admin is another store on the same database, as another process has.
type admin interface {
	ListOutbox(ctx context.Context, f schema.RowFilter) ([]schema.Row, error)
	ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error)
	Backlogs(ctx context.Context) ([]schema.Backlog, error)
	SetMaxPayload(ctx context.Context, bytes int) error
}

// database is a fresh database with an outbox for one kind of transaction and a business table, orders.
type database[Tx any] struct {
	admin
	outbox *publishers.Outbox[Tx]
	store  publishers.Store[Tx]
	begin  func(ctx context.Context) (Tx, error)
	end    func(ctx context.Context, tx Tx, commit bool) error
	exec   func(ctx context.Context, tx Tx, statement string) error
	count  func(ctx context.Context) (int, error) // orders

	clock  time.Time
	nudges atomic.Int64
	nudged func() // called by a nudge, if set
}

const (
	createOrders = "CREATE TABLE orders (n integer)"
	countOrders  = "SELECT count(*) FROM orders"
)

func (d *database[Tx]) open(store publishers.Store[Tx]) {
	d.store = store
	d.clock = time.Date(2031, 2, 3, 4, 5, 6, 789, time.UTC)
	d.outbox = publishers.NewOutbox(store, publishers.Config{
		Now: func() time.Time { return d.clock },
		Nudge: func() {
			d.nudges.Add(1)
			if d.nudged != nil {
				d.nudged()
			}
		},
	})
}

func openPgx(t *testing.T) *database[pgx.Tx] {
	t.Helper()
	pool := testkit.Postgres(t)
	store := postgres.New(pool, postgres.Options{})
	d := &database[pgx.Tx]{
		admin: postgres.New(pool, postgres.Options{}),
		begin: pool.Begin,
		end: func(ctx context.Context, tx pgx.Tx, commit bool) error {
			if commit {
				return tx.Commit(ctx)
			}
			return tx.Rollback(ctx)
		},
		exec: func(ctx context.Context, tx pgx.Tx, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
		count: func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, countOrders).Scan(&n)
			return n, err
		},
	}
	if _, err := pool.Exec(t.Context(), createOrders); err != nil {
		t.Fatal(err)
	}
	d.open(store)
	return d
}

// openSQL returns a database whose transactions are database/sql's.
func openSQL(t *testing.T, db *sql.DB, other admin, store publishers.Store[*sql.Tx]) *database[*sql.Tx] {
	t.Helper()
	d := &database[*sql.Tx]{
		admin: other,
		begin: func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) },
		end: func(_ context.Context, tx *sql.Tx, commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
		exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		count: func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, countOrders).Scan(&n)
			return n, err
		},
	}
	if _, err := db.ExecContext(t.Context(), createOrders); err != nil {
		t.Fatal(err)
	}
	d.open(store)
	return d
}

func openPostgresSQL(t *testing.T) *database[*sql.Tx] {
	t.Helper()
	pool := testkit.Postgres(t)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	return openSQL(t, db, postgres.New(pool, postgres.Options{}), postgres.New(pool, postgres.Options{}).SQL())
}

func openSQLite(t *testing.T) *database[*sql.Tx] {
	t.Helper()
	write, read := testkit.SQLite(t)
	store := sqlite.New(write, read, sqlite.Options{})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return openSQL(t, write, sqlite.New(write, read, sqlite.Options{}), store)
}

// onEach runs a test on every kind of transaction.
func onEach(t *testing.T, onPgx func(*testing.T, *database[pgx.Tx]), onSQL func(*testing.T, *database[*sql.Tx])) {
	t.Helper()
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); onPgx(t, openPgx(t)) })
	t.Run("postgres through database/sql", func(t *testing.T) { t.Parallel(); onSQL(t, openPostgresSQL(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); onSQL(t, openSQLite(t)) })
}

// in runs fn in a transaction with one business row, and commits it whatever fn says unless commit is false.
func (d *database[Tx]) in(t *testing.T, commit bool, fn func(tx Tx)) {
	t.Helper()
	tx, err := d.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer d.end(context.Background(), tx, false) //nolint:errcheck // for when fn ends the test
	if err := d.exec(t.Context(), tx, "INSERT INTO orders VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	fn(tx)
	if err := d.end(t.Context(), tx, commit); err != nil {
		t.Fatal(err)
	}
}

func (d *database[Tx]) rows(t *testing.T) []schema.Row {
	t.Helper()
	rows, err := d.ListOutbox(t.Context(), schema.RowFilter{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// envelopes decodes all rows of the outbox.
func (d *database[Tx]) envelopes(t *testing.T) []schema.Envelope {
	t.Helper()
	var envs []schema.Envelope
	for _, r := range d.rows(t) {
		e, err := r.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, e)
	}
	return envs
}

// backlog counts what waits in the outbox.
func (d *database[Tx]) backlog(t *testing.T) (n int64) {
	t.Helper()
	for _, b := range must[[]schema.Backlog](t)(d.Backlogs(t.Context())) {
		n += b.Rows
	}
	return n
}

func (d *database[Tx]) want(t *testing.T, orders, messages int) {
	t.Helper()
	n, err := d.count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rows := d.rows(t); n != orders || len(rows) != messages {
		t.Errorf("%d orders and %d messages, want %d and %d", n, len(rows), orders, messages)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func jobs(n int) []schema.Envelope {
	envs := make([]schema.Envelope, n)
	for i := range envs {
		envs[i] = schema.NewJob("mail", "send", []byte(fmt.Sprint(i)))
	}
	return envs
}

func longest(s string) string { return strings.Repeat(s, 300) }
