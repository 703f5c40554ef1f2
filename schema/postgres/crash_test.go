package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// privateServer returns a pool on a server of the test's own, where nobody else writes and which may crash. What is
// committed without waiting stays in memory for long.
func privateServer(t *testing.T) *pgxpool.Pool {
	t.Helper()
	server, err := pgserver.Start()
	if err != nil {
		t.Fatalf("this test needs a server that it may crash: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, sql := range []string{`ALTER SYSTEM SET wal_writer_delay = '10s'`, `ALTER SYSTEM SET checkpoint_timeout = '1d'`, `SELECT pg_reload_conf()`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := postgres.New(pool, postgres.Options{}).MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return pool
}

// crash kills a process of the server, upon which it ends all others, forgets what is not on disk, and recovers.
func crash(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	// The epoch, by which to see the recovery; it is there unless nobody has read since the last crash.
	if _, err := pool.Exec(t.Context(), `INSERT INTO millbridge.epoch DEFAULT VALUES ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	var pid int
	var epoch string
	const ask = `SELECT pg_backend_pid(), coalesce((SELECT token::text FROM millbridge.epoch), '')`
	if err := pool.QueryRow(t.Context(), ask).Scan(&pid, &epoch); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill the server's process (the tests must run as its user or as root): %v", err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		var now string
		err := pool.QueryRow(t.Context(), ask).Scan(&pid, &now)
		if err == nil && now == epoch {
			err = errors.New("the server has not recovered")
		}
		return err
	})
}

// publishAsync commits without waiting for the disk.
func publishAsync(t *testing.T, s *postgres.Store, id string) {
	t.Helper()
	err := s.InTx(t.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		_, err := s.Append(t.Context(), tx, []schema.Envelope{job(id)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReader_returns_only_what_survives_a_crash(t *testing.T) {
	t.Parallel()
	pool := privateServer(t)
	s := postgres.New(pool, postgres.Options{})
	r := newTail(t, s)
	for i := range 3 {
		read, lost := fmt.Sprint("read", i), fmt.Sprint("lost", i)
		publishAsync(t, s, read)
		r.wants(read)
		publishAsync(t, s, lost)
		crash(t, pool)
		got := outbox(t, s)
		if !slices.Contains(got, read) {
			t.Errorf("%s was read, and is gone after a crash", read)
		}
		if slices.Contains(got, lost) {
			t.Errorf("%s survived: this test sees nothing", lost)
		}
	}
}

// Numbers that were drawn before a crash come back after it, below what the reader had gone past.
// That all commits up to a number are known, and those read are on disk, says nothing of the others.
func TestReader_knows_what_survives_a_crash(t *testing.T) {
	t.Parallel()
	pool := privateServer(t)
	s := postgres.New(pool, postgres.Options{})
	r := s.NewReader(wholeStream, 1)
	read := func(want string, exclude ...int64) (row schema.Row) {
		t.Helper()
		rows, err := r.Read(t.Context(), schema.ReadParams{MaxRows: 1, Exclude: exclude})
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(t, rows); len(got) != 1 || got[0] != want {
			t.Fatalf("read %v, want %s", got, want)
		}
		return rows[0]
	}
	publishAsync(t, s, "first")
	first := schema.Row{}
	settle := func() {
		for range 4 {
			first = read("first")
			<-time.After(110 * time.Millisecond)
		}
	}
	settle()
	publishAsync(t, s, "second")
	settle()
	read("second", first.Seq)
	crash(t, pool)
	if got := outbox(t, s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("%v survived a crash, both were read", got)
	}
}

func TestReader_after_a_crash(t *testing.T) {
	t.Parallel()
	pool := privateServer(t)
	s := postgres.New(pool, postgres.Options{})
	r := newTail(t, s)
	last := func() (n int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT last_value FROM millbridge.outbox_seq`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for try := range 10 {
		// Few enough bytes not to fill a page of the log, which would be written at once.
		tx := begin(t, pool, pgx.ReadCommitted)
		if _, err := tx.Exec(t.Context(), `SELECT count(nextval('millbridge.outbox_seq')) FROM generate_series(1, 200)`); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.rest() // the floor is above all of these
		before := last()
		crash(t, pool)
		id := fmt.Sprint("again", try)
		tx = begin(t, pool, pgx.ReadCommitted)
		publish(t, s, tx, job(id))
		commit(t, tx)
		r.wants(id)
		r.forget(pool)
		if last() < before {
			return
		}
	}
	t.Error("no number came back: this test sees nothing")
}

// A crash between the reading of rows and the moment when they are on disk: none of them may be returned.
func TestReader_crash_while_it_waits_for_the_disk(t *testing.T) {
	t.Parallel()
	pool := privateServer(t)
	s := postgres.New(pool, postgres.Options{})
	for i := range 5 {
		publishAsync(t, s, fmt.Sprint(i))
		r := s.NewReader(wholeStream, 1)
		type answer struct {
			rows []schema.Row
			err  error
		}
		answers := make(chan answer)
		go func() {
			rows, err := r.Read(t.Context(), schema.ReadParams{})
			answers <- answer{rows, err}
		}()
		<-time.After(time.Duration(i) * 5 * time.Millisecond)
		crash(t, pool)
		got := <-answers
		if got.err != nil {
			continue // its connection was cut
		}
		there := outbox(t, s)
		for _, id := range ids(t, got.rows) {
			if !slices.Contains(there, id) {
				t.Errorf("%s was returned, and is gone", id)
			}
		}
	}
}

func TestReader_gives_up_waiting_for_the_disk(t *testing.T) {
	t.Parallel()
	pool := privateServer(t)
	s := postgres.New(pool, postgres.Options{})
	publishAsync(t, s, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Millisecond)
	defer cancel()
	if rows, err := s.NewReader(wholeStream, 1).Read(ctx, schema.ReadParams{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d rows, %v; want it to end with its context", len(rows), err)
	}
}

// Behind a pooler a crash need not cut the reader's connection. The log grows again beyond the place waited for, but
// the rows may be gone.
func TestReader_waits_in_one_epoch_only(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	if same, err := s.AwaitFlush(t.Context(), "before the crash", 1); same || err != nil {
		t.Errorf("the same epoch: %v, %v; want another", same, err)
	}
}

// In a database that does not wait for the disk, what the broker or a handler is told of survives a crash all the same.
func TestInbox_survives_a_crash(t *testing.T) {
	t.Parallel()
	cfg := privateServer(t).Config()
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := postgres.New(pool, postgres.Options{})
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	crash(t, pool) // from here on the server's writer of the log is as slow as it was told to be
	exec(`CREATE TABLE effects (name text)`)
	claim := func(r schema.Run) error {
		res, err := s.Claim(t.Context(), r)
		if err == nil && res.Claim != schema.ClaimRun {
			err = fmt.Errorf("answer %v", res.Claim)
		}
		return err
	}
	inTx := func(effect string) func(r schema.Run) error {
		return func(r schema.Run) error {
			return s.Unit(t.Context(), func(u schema.Unit) error {
				if res, err := u.Claim(t.Context(), r); err != nil || res.Claim != schema.ClaimRun {
					return fmt.Errorf("claim %v: %w", res.Claim, err)
				}
				_, err := u.Tx().(pgx.Tx).Exec(t.Context(), `INSERT INTO effects VALUES ($1)`, effect)
				return err
			})
		}
	}
	failed := func(r schema.Run) error {
		_, err := s.Fail(t.Context(), r, schema.Failure{Reason: "no", Attempted: true, Deliveries: 1})
		return err
	}
	dead := schema.Failure{Dead: true, Cause: schema.CauseExhausted, Reason: "no", Attempted: true}
	for _, c := range []struct {
		name   string
		before func(r schema.Run) error
		do     func(r schema.Run) error
		want   schema.InboxState
	}{
		{"claimed", nil, claim, schema.InboxRunning},
		{"done", claim, func(r schema.Run) error { return s.Done(t.Context(), r) }, schema.InboxDone},
		{"failed", claim, func(r schema.Run) error {
			_, err := s.Fail(t.Context(), r, dead)
			return err
		}, schema.InboxDead},
		{"claimed in a group", nil, func(r schema.Run) error {
			_, _, err := s.Group(t.Context(), []schema.Run{r}, nil)
			return err
		}, schema.InboxRunning},
		{"done in a group", claim, func(r schema.Run) error {
			_, _, err := s.Group(t.Context(), nil, []schema.Run{r})
			return err
		}, schema.InboxDone},
		{"transaction", nil, inTx("transaction"), schema.InboxDone},
		{"second transaction", failed, inTx("second transaction"), schema.InboxDone},
		{"third transaction", failed, inTx("third transaction"), schema.InboxDone},
		{"fourth transaction", failed, inTx("fourth transaction"), schema.InboxDone},
		{"replayed", func(r schema.Run) error {
			if err := claim(r); err != nil {
				return err
			}
			_, err := s.Fail(t.Context(), r, dead)
			return err
		}, func(r schema.Run) error {
			return s.Unit(t.Context(), func(u schema.Unit) error {
				_, err := u.ResetForReplay(t.Context(), r.Key, 0)
				return err
			})
		}, schema.InboxRunning},
	} {
		r := run("worker")
		r.Key.Key = c.name
		if c.before != nil {
			if err := c.before(r); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if err := c.do(r); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		exec(fmt.Sprintf(`INSERT INTO effects VALUES ('nobody waits for %s')`, c.name))
		crash(t, pool)
		record, found, err := s.LookupInbox(t.Context(), r.Key)
		if err != nil || !found || record.State != c.want {
			t.Errorf("%s: after a crash found %v, %+v, %v; want state %s", c.name, found, record, err, c.want)
		}
	}
	var effects []string
	err = pool.QueryRow(t.Context(), `SELECT array_agg(name) FROM effects`).Scan(&effects)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"transaction", "second transaction", "third transaction", "fourth transaction"} {
		if !slices.Contains(effects, name) {
			t.Errorf("effects %q; that of the %s is missing", effects, name)
		}
	}
	if len(effects) > 4+4 { // the server may write one or the other by itself
		t.Errorf("effects %q survived: this test sees nothing", effects)
	}
}
