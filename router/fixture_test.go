package router_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// TestMain lets more tests run side by side than there are processors, because they mostly wait, and each model make
// fewer worlds than rapid's hundred unless -rapid.checks says otherwise.
func TestMain(m *testing.M) {
	checks := flag.Set("rapid.checks", "40")
	flag.Parse()
	if err := errors.Join(checks, flag.Set("test.parallel", "6")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

// testStore is what the tests use of a store beside the bridge.
type testStore interface {
	router.Store
	deadletters.Store
	InboxByMessage(ctx context.Context, id string) ([]schema.InboxRecord, error)
	InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error)
	Backlogs(ctx context.Context) ([]schema.Backlog, error)
	EnableHandler(ctx context.Context, handler string) (c schema.Circuit, changed bool, err error)
}

// bench is a store and a server of one test.
type bench struct {
	testing.TB
	kind     string // "sqlite" or "postgres"
	dsn      string // where another process opens the store
	sqlite   *sql.DB
	postgres *pgxpool.Pool
	store    testStore
	nats     *testkit.Server
	conn     *nats.Conn
	js       jetstream.JetStream
	subjects schema.Subjects
}

// onBoth runs a test on each store.
func onBoth(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	for kind, open := range map[string]func(*testing.T) *bench{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func onSQLite(t *testing.T) *bench {
	t.Helper()
	b := &bench{TB: t, kind: "sqlite", dsn: filepath.Join(t.TempDir(), "test.db")}
	write, read := testkit.OpenSQLite(t, b.dsn)
	store := sqlite.New(write, read, sqlite.Options{Logger: testkit.Logger(t)})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sqlite, b.store = write, store
	return b.connect()
}

func onPostgres(t *testing.T) *bench {
	t.Helper()
	pool := testkit.Postgres(t)
	b := &bench{TB: t, kind: "postgres", dsn: testkit.PostgresURL(pool), postgres: pool}
	b.store = postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
	return b.connect()
}

func (b *bench) connect() *bench {
	b.Helper()
	b.nats = testkit.NATS(b)
	b.conn = b.nats.Conn(b)
	var err error
	if b.js, err = jetstream.New(b.conn); err != nil {
		b.Fatal(err)
	}
	return b
}

// restartNATS restarts the server and waits for the test's connection.
func (b *bench) restartNATS() {
	b.Helper()
	b.nats.Restart()
	b.eventually(func() error {
		if !b.conn.IsConnected() {
			return errors.New("not connected")
		}
		return nil
	})
}

// exec runs a statement of the test's own, outside of Millbridge's tables.
func (b *bench) exec(query string) {
	b.Helper()
	var err error
	if b.sqlite != nil {
		_, err = b.sqlite.ExecContext(b.Context(), query)
	} else {
		_, err = b.postgres.Exec(b.Context(), query)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// count runs a query that counts.
func (b *bench) count(query string) (n int) {
	b.Helper()
	var err error
	if b.sqlite != nil {
		err = b.sqlite.QueryRowContext(b.Context(), query).Scan(&n)
	} else {
		err = b.postgres.QueryRow(b.Context(), query).Scan(&n)
	}
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// quick is a policy whose waits are short.
func quick(attempts int) handlers.Policy {
	return handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: attempts, Base: 20 * time.Millisecond, Factor: 1}}
}

// open opens a bridge with short waits. SQLite has one forwarder, which the first bridge has.
func (b *bench) open(edits ...func(*router.Config)) *router.Bridge {
	b.Helper()
	cfg := router.Config{
		Store: b.store, Conn: b.conn, Subjects: b.subjects, Logger: testkit.Logger(b), CloseTimeout: 10 * time.Second,
		AckWait: 2 * time.Second, Heartbeat: 500 * time.Millisecond,
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	var bridge *router.Bridge
	b.eventually(func() (err error) {
		bridge, err = router.Open(b.Context(), cfg)
		if err != nil && !testkit.IsPeerOffline(err) {
			b.Fatal(err)
		}
		return err
	})
	return bridge
}

func noForward(c *router.Config) { c.NoForward = true }

// target adds a target to the bridge.
func (b *bench) target(bridge *router.Bridge, name string, policy handlers.Policy, h func(context.Context, schema.Envelope) error) {
	b.Helper()
	if err := bridge.Target(handlers.Target{Name: name, Policy: policy, Handler: handlers.HandlerFunc(h)}); err != nil {
		b.Fatal(err)
	}
}

// run runs the bridge; the returned function stops it and returns what Run returned. It is stopped with the test, too.
func (b *bench) run(bridge *router.Bridge) (stop func() error) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = bridge.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	b.Cleanup(func() { _ = stop() }) // what it returns is for those who ask
	return stop
}

func (b *bench) publish(bridge *router.Bridge, envs ...schema.Envelope) []schema.Receipt {
	b.Helper()
	receipts, err := bridge.Publish(b.Context(), envs...)
	if err != nil {
		b.Fatal(err)
	}
	return receipts
}

func (b *bench) eventually(check func() error) {
	b.Helper()
	testkit.Eventually(b, patience, check)
}

// box is the box of dead letters.
func (b *bench) box() *deadletters.Box { return deadletters.New(b.js, b.subjects, 0) }

// listAll selects all letters, tombstones included.
var listAll = deadletters.Filter{Tombstones: true, Limit: 10_000}

// letters returns all letters, tombstones included.
func (b *bench) letters() []deadletters.Letter {
	b.Helper()
	letters, _, err := b.box().List(b.Context(), listAll)
	if err != nil {
		b.Fatal(err)
	}
	return letters
}

// awaitLetters waits for n letters and returns them.
func (b *bench) awaitLetters(n int) []deadletters.Letter {
	b.Helper()
	var letters []deadletters.Letter
	b.eventually(func() error {
		if letters = b.letters(); len(letters) != n {
			return fmt.Errorf("%d letters, want %d", len(letters), n)
		}
		return nil
	})
	return letters
}

func (b *bench) operator() *deadletters.Operator {
	return &deadletters.Operator{Store: b.store, Letters: b.box(), Subjects: b.subjects}
}

// waiting returns how many messages a filter matches in the stream.
func (b *bench) waiting(st schema.Stream, filter string) int {
	b.Helper()
	n, err := b.countMessages(st, filter)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bench) countMessages(st schema.Stream, filter string) (int, error) {
	stream, err := b.js.Stream(b.Context(), b.subjects.StreamName(st))
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(b.Context(), jetstream.WithSubjectFilter(b.subjects.Full(filter)))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n, nil
}

// awaitNoJobs waits until the work queue has no jobs and no replays.
func (b *bench) awaitNoJobs() {
	b.Helper()
	b.eventually(func() error {
		for _, filter := range []string{"jobs.>", "replay.>"} {
			if n, err := b.countMessages(schema.Jobs, filter); err != nil || n > 0 {
				return fmt.Errorf("%d messages match %s, error %v", n, filter, err)
			}
		}
		return nil
	})
}

// calls counts what a handler did.
type calls struct {
	mu   sync.Mutex
	list []schema.Envelope
	at   []time.Time
}

func (c *calls) add(env schema.Envelope) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.at = append(c.list, env), append(c.at, time.Now())
	return len(c.list)
}

func (c *calls) all() []schema.Envelope {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]schema.Envelope(nil), c.list...)
}

func (c *calls) times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Time(nil), c.at...)
}

func (c *calls) count() int { return len(c.all()) }

// byID counts the calls for each message.
func (c *calls) byID() map[string]int {
	n := make(map[string]int)
	for _, env := range c.all() {
		n[env.ID]++
	}
	return n
}

func (c *calls) reaches(n int) func() error {
	return func() error {
		if got := c.count(); got < n {
			return fmt.Errorf("%d calls, want %d", got, n)
		}
		return nil
	}
}

var errFlaky = errors.New("the other side is out of order")
