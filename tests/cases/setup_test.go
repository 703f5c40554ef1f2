package cases

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A unit is the caller's transaction: it publishes and writes a business row.
type unit struct {
	publish func(envs ...schema.Envelope) ([]schema.Receipt, error)
	order   func(name string) error // inserts a business row
}

// A world is a service's database with our tables and a table of its own, and a NATS server.
type world struct {
	store   router.Store
	inTx    func(fn func(u unit) error) error
	orders  func() int                   // committed business rows
	rows    func() ([]schema.Row, error) // outbox
	parked  func() ([]schema.ParkedRow, error)
	dsn     string        // of PostgreSQL
	file    string        // of SQLite
	pg      *pgxpool.Pool // nil on SQLite
	write   *sql.DB       // nil on PostgreSQL, as is read
	read    *sql.DB
	nats    *testkit.Server
	conn    *nats.Conn
	letters *deadletters.Box
}

// everywhere runs test on both stores.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *world{"postgres": onPostgres, "sqlite": onSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// connect adds what all worlds have.
func (w *world) connect(t *testing.T) *world {
	t.Helper()
	w.nats = testkit.NATS(t)
	w.conn = w.nats.Conn(t)
	w.letters = deadletters.New(testkit.JetStream(t, w.conn), schema.Subjects{}, 0)
	return w
}

func onPostgres(t *testing.T) *world {
	t.Helper()
	return onPool(t, testkit.Postgres(t))
}

// onPool is onPostgres with the pool that the service and its bridge share.
func onPool(t *testing.T, pool *pgxpool.Pool) *world {
	t.Helper()
	s := postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
	t.Cleanup(s.Close)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (name text)`); err != nil {
		t.Fatal(err)
	}
	outbox := publishers.NewOutbox(s, publishers.Config{})
	w := &world{store: s, dsn: testkit.PostgresURL(pool), pg: pool}
	w.inTx = func(fn func(u unit) error) error {
		return s.InTx(t.Context(), func(tx pgx.Tx) error {
			return fn(unit{
				publish: func(envs ...schema.Envelope) ([]schema.Receipt, error) {
					return outbox.Publish(t.Context(), tx, envs...)
				},
				order: func(name string) error {
					_, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES ($1)`, name)
					return err
				},
			})
		})
	}
	w.orders = func() (n int) {
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	w.rows = func() ([]schema.Row, error) { return s.ListOutbox(t.Context(), schema.RowFilter{Limit: 1000}) }
	w.parked = func() ([]schema.ParkedRow, error) { return s.ListParked(t.Context(), schema.RowFilter{}) }
	return w.connect(t)
}

func onSQLite(t *testing.T) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millbridge.db")
	write, read := testkit.OpenSQLite(t, file)
	s := sqlite.New(write, read, sqlite.Options{Logger: testkit.Logger(t)})
	t.Cleanup(s.Close)
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := write.ExecContext(t.Context(), `CREATE TABLE orders (name text)`); err != nil {
		t.Fatal(err)
	}
	outbox := publishers.NewOutbox(s, publishers.Config{})
	w := &world{store: s, file: file, write: write, read: read}
	w.inTx = func(fn func(u unit) error) error {
		return s.InTx(t.Context(), func(tx *sql.Tx) error {
			return fn(unit{
				publish: func(envs ...schema.Envelope) ([]schema.Receipt, error) {
					return outbox.Publish(t.Context(), tx, envs...)
				},
				order: func(name string) error {
					_, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES (?)`, name)
					return err
				},
			})
		})
	}
	w.orders = func() (n int) {
		if err := read.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	w.rows = func() ([]schema.Row, error) { return s.ListOutbox(t.Context(), schema.RowFilter{Limit: 1000}) }
	w.parked = func() ([]schema.ParkedRow, error) { return s.ListParked(t.Context(), schema.RowFilter{}) }
	return w.connect(t)
}

// publish commits messages together with a business row.
func (w *world) publish(t *testing.T, envs ...schema.Envelope) []schema.Receipt {
	t.Helper()
	var receipts []schema.Receipt
	err := w.inTx(func(u unit) error {
		if err := u.order("o"); err != nil {
			return err
		}
		var err error
		receipts, err = u.publish(envs...)
		return err
	})
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return receipts
}

// refused publishes what must not be accepted. The refusal must leave nothing behind, and the caller's transaction fit
// to go on.
func (w *world) refused(t *testing.T, env schema.Envelope) error {
	t.Helper()
	before := w.orders()
	var refusal error
	err := w.inTx(func(u unit) error {
		if err := u.order("before"); err != nil {
			return err
		}
		_, refusal = u.publish(schema.NewEvent("beside", nil), env) // neither is written
		return u.order("after")
	})
	if err != nil {
		t.Errorf("the caller's transaction could not go on after the refusal: %v", err)
	}
	if n := w.orders() - before; n != 2 {
		t.Errorf("%d of the caller's own rows are there, want 2", n)
	}
	if refusal == nil {
		t.Error("accepted")
	}
	if rows, err := w.rows(); err != nil || len(rows) != 0 {
		t.Errorf("%d rows after a refusal, %v", len(rows), err)
	}
	return refusal
}

func (w *world) open(t *testing.T, targets ...handlers.Target) *router.Bridge {
	t.Helper()
	return w.openWith(t, func(*router.Config) {}, targets...)
}

func (w *world) openWith(t *testing.T, edit func(*router.Config), targets ...handlers.Target) *router.Bridge {
	t.Helper()
	cfg := router.Config{
		Store: w.store, Conn: w.conn, Logger: testkit.Logger(t), Heartbeat: time.Second, CloseTimeout: 10 * time.Second,
	}
	edit(&cfg)
	b, err := router.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if err := b.Target(target); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// drain works until nothing is due, and checks that nothing was parked on the way.
func (w *world) drain(t *testing.T, b *router.Bridge) router.Tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tally, err := b.Drain(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := w.parked(); err != nil || len(rows) != 0 {
		t.Fatalf("%d rows were parked, %v", len(rows), err)
	}
	return tally
}

// run runs b until the test ends.
func run(t *testing.T, b *router.Bridge) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// dead returns all dead letters.
func (w *world) dead(t *testing.T) []deadletters.Letter {
	t.Helper()
	letters, _, err := w.letters.List(t.Context(), deadletters.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

// A recorder is a handler that keeps what it gets.
type recorder struct {
	mu  sync.Mutex
	got []schema.Envelope
}

func (r *recorder) Handle(_ context.Context, env schema.Envelope) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, env)
	return nil
}

func (r *recorder) all() []schema.Envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *recorder) ids() []string {
	ids := []string{}
	for _, e := range r.all() {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func short(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%.40q... (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}
