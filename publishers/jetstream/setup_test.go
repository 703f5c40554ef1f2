package jetstream

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A database is a migrated store of either kind for a test.
type database struct {
	Store
	publish func(ctx context.Context, envs ...schema.Envelope) error
	limit   func(ctx context.Context, bytes int) error
	parked  func(ctx context.Context, f schema.RowFilter) ([]schema.ParkedRow, error)
	waiting func(ctx context.Context, f schema.RowFilter) ([]schema.Row, error)
	release func(ctx context.Context, name schema.RowName) (int, error)
	repair  RepairStore
	replica Store                                 // of another process
	insert  func(r schema.Row) error              // a row that nobody has checked
	exec    func(query string, args ...any) error // raw SQL
	prefix  string                                // of table names
}

var stores = map[string]func(testing.TB) *database{"postgres": openPostgres, "sqlite": openSQLite}

// databases runs test on both stores.
func databases(t *testing.T, test func(t *testing.T, open func(t testing.TB) *database)) {
	t.Helper()
	for name := range stores {
		only(name)(t, test)
	}
}

// only is databases for one store.
func only(name string) func(t *testing.T, test func(t *testing.T, open func(t testing.TB) *database)) {
	return func(t *testing.T, test func(t *testing.T, open func(t testing.TB) *database)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, stores[name])
		})
	}
}

func openPostgres(t testing.TB) *database {
	t.Helper()
	pool := testkit.Postgres(t)
	s := postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
	t.Cleanup(func() { s.Close() })
	d := &database{
		Store: StoreOf(s), limit: s.SetMaxPayload, parked: s.ListParked, waiting: s.ListOutbox, release: s.ReleaseParked,
		repair: RepairStoreOf(s), replica: StoreOf(s), prefix: "millbridge.",
		publish: func(ctx context.Context, envs ...schema.Envelope) error {
			return s.InTx(ctx, func(tx pgx.Tx) error {
				_, err := s.Append(ctx, tx, envs)
				return err
			})
		},
		exec: func(query string, args ...any) error {
			_, err := pool.Exec(context.WithoutCancel(t.Context()), query, args...)
			return err
		},
	}
	d.insert = func(r schema.Row) error {
		return d.exec(`INSERT INTO millbridge.outbox (id, slot, stream, subject, header, payload) VALUES ($1, $2, $3, $4, $5, $6)`,
			r.ID.String(), int(r.Slot), string(r.Stream), r.Subject, r.Header, r.Payload)
	}
	return d
}

func openSQLite(t testing.TB) *database {
	t.Helper()
	write, read := testkit.SQLite(t)
	s := sqlite.New(write, read, sqlite.Options{Logger: testkit.Logger(t)})
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	other := sqlite.New(write, read, sqlite.Options{})
	t.Cleanup(func() { other.Close() })
	d := &database{
		Store: StoreOf(s), limit: s.SetMaxPayload, parked: s.ListParked, waiting: s.ListOutbox, release: s.ReleaseParked,
		repair: RepairStoreOf(s), replica: StoreOf(other), prefix: "millbridge_",
		publish: func(ctx context.Context, envs ...schema.Envelope) error {
			return s.InTx(ctx, func(tx *sql.Tx) error {
				_, err := s.Append(ctx, tx, envs)
				return err
			})
		},
		exec: func(query string, args ...any) error {
			_, err := write.ExecContext(context.WithoutCancel(t.Context()), query, args...)
			return err
		},
	}
	d.insert = func(r schema.Row) error {
		return d.exec(`INSERT INTO millbridge_outbox (id, slot, stream, subject, created_at, header, payload) VALUES (?,?,?,?,?,?,?)`,
			r.ID[:], int(r.Slot), string(r.Stream), r.Subject, time.Now().UnixNano(), r.Header, r.Payload)
	}
	return d
}

// mustPublish publishes in a transaction of its own.
func (d *database) mustPublish(t *testing.T, envs ...schema.Envelope) {
	t.Helper()
	if err := d.publish(t.Context(), envs...); err != nil {
		t.Fatal(err)
	}
}

// A broker is a NATS server with the streams and a connection.
type broker struct {
	*testkit.Server
	nc *nats.Conn
	js natsjs.JetStream
}

func openBroker(t testing.TB, edits ...func(*server.Options)) *broker {
	t.Helper()
	b := &broker{Server: testkit.NATS(t, edits...)}
	b.nc = b.Conn(t)
	b.js = testkit.JetStream(t, b.nc)
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	return b
}

// quick are settings under which nothing takes long.
func quick(t *testing.T) ForwarderConfig {
	return ForwarderConfig{AckTimeout: 5 * time.Second, RetryMax: 200 * time.Millisecond, Lease: 5 * time.Second, TendEvery: 50 * time.Millisecond, Logger: testkit.Logger(t)}
}

func newForwarder(t testing.TB, d Store, nc *nats.Conn, cfg ForwarderConfig) *Forwarder {
	t.Helper()
	f, err := NewForwarder(d, nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func drain(t *testing.T, f *Forwarder) Tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tally, err := f.Drain(ctx)
	if err != nil {
		t.Fatalf("drain: %v (tally %+v)", err, tally)
	}
	return tally
}

// A stored message is what a stream holds.
type storedMsg struct {
	seq     uint64
	subject string
	id      string
	header  nats.Header
	data    string
}

// stored reads all messages of a stream but cursors, in order.
func stored(t testing.TB, js natsjs.JetStream, stream string) []storedMsg {
	t.Helper()
	whole, cancel := context.WithTimeout(t.Context(), time.Minute) // the client would give a busy server five seconds
	defer cancel()
	s, err := js.Stream(whole, stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(whole)
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	all := make([]storedMsg, info.State.LastSeq-info.State.FirstSeq+1)
	group, ctx := errgroup.WithContext(whole)
	group.SetLimit(16)
	for i := range all {
		group.Go(func() error {
			m, err := s.GetMsg(ctx, info.State.FirstSeq+uint64(i))
			if err == nil {
				all[i] = storedMsg{m.Sequence, m.Subject, m.Header.Get(schema.HeaderID), m.Header, string(m.Data)}
			}
			if errors.Is(err, natsjs.ErrMsgNotFound) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m storedMsg) bool { return m.id == "" })
}

// jobs makes n jobs whose payloads count from first.
func jobs(first, n int, opts ...schema.Option) []schema.Envelope {
	envs := make([]schema.Envelope, n)
	for i := range envs {
		envs[i] = schema.NewJob("shop", "order.paid", fmt.Appendf(nil, "%d", first+i), opts...)
	}
	return envs
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	testkit.Eventually(t, time.Minute, check)
}
