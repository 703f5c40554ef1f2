package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

var wholeStream = schema.ShardRef{Stream: schema.Jobs, Generation: 1, Shard: 0}

// A tail is a reader of a whole stream that keeps in mind what it has read, as a forwarder does until it is removed.
type tail struct {
	t testing.TB
	s *postgres.Store
	*postgres.Reader
	read    []schema.Row
	exclude []int64
	afresh  bool // each read looks at all there is
	reads   int
}

func newTail(t testing.TB, s *postgres.Store) *tail {
	return &tail{t: t, s: s, Reader: s.NewReader(wholeStream, 1)}
}

// next returns the ids of what is new.
func (r *tail) next() []string {
	r.t.Helper()
	look, p := r.Look(r.params()), r.params()
	if r.reads++; r.reads%2 == 0 { // every other one takes what a look has seen
		p.Seen = r.peek(look).Seen
	}
	rows, err := r.Read(r.t.Context(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(rows) > 0 && !r.peek(look).Found {
		r.t.Fatalf("%d rows are there, and the look %+v finds nothing", len(rows), look)
	}
	for _, row := range rows {
		r.read, r.exclude = append(r.read, row), append(r.exclude, row.Seq)
	}
	return ids(r.t, rows)
}

func (r *tail) params() schema.ReadParams {
	return schema.ReadParams{Exclude: r.exclude, GoOn: !r.afresh}
}

func (r *tail) peek(look schema.Look) schema.Sight {
	r.t.Helper()
	sights, err := r.s.Peek(r.t.Context(), []schema.Look{look})
	if err != nil {
		r.t.Fatal(err)
	}
	return sights[0]
}

func (r *tail) wants(want ...string) {
	r.t.Helper()
	if got := r.next(); !slices.Equal(got, want) {
		r.t.Fatalf("read %v, want %v", got, want)
	}
}

// forget removes what was read, so that nothing but transactions that are open keeps the floor down.
func (r *tail) forget(pool *pgxpool.Pool) {
	r.t.Helper()
	if _, err := pool.Exec(r.t.Context(), `DELETE FROM millbridge.outbox WHERE seq = ANY ($1::bigint[])`, r.exclude); err != nil {
		r.t.Fatal(err)
	}
	r.exclude = nil
}

// rest reads for a while, so that the floor rises as far as it can.
func (r *tail) rest() {
	r.t.Helper()
	for range 4 {
		r.wants()
		select {
		case <-r.t.Context().Done():
		case <-time.After(110 * time.Millisecond):
		}
	}
	r.wants()
}

func job(id string, opts ...schema.Option) schema.Envelope {
	return schema.NewJob("crm", "create", nil, append(opts, schema.WithID(id))...)
}

func TestC01_late_commit_of_an_early_row(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	r := newTail(t, s)
	a, gap, b := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	publish(t, s, a, job("1"))
	publish(t, s, gap, job("never"))
	publish(t, s, b, job("2"))
	commit(t, b)
	r.wants("2")
	r.forget(pool)
	r.rest()
	if err := gap.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.rest()
	commit(t, a)
	r.wants("1")
	r.forget(pool)
	r.rest()
	// A gap delays nothing: the next row is there at the next look.
	gap = begin(t, pool, pgx.ReadCommitted)
	publish(t, s, gap, job("never"))
	if err := gap.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = begin(t, pool, pgx.ReadCommitted)
	publish(t, s, b, job("3"))
	commit(t, b)
	r.wants("3")
}

// 1,000 transactions at once, of any length, some of them rolled back, some prepared and committed by others.
func TestC01_thousand_transactions(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	var mu sync.Mutex
	committed := make(map[string]bool)
	ctx, done := context.WithCancel(t.Context())
	var writers, reader sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range 1000 {
		writers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id := fmt.Sprint("m", i)
			err := s.InTx(t.Context(), func(tx pgx.Tx) error {
				if _, err := s.Append(t.Context(), tx, []schema.Envelope{job(id)}); err != nil {
					return err
				}
				last := time.Duration(i*i%97) * time.Millisecond / 2
				if i%100 == 50 {
					last = time.Second
				}
				<-time.After(last)
				if i%10 == 3 {
					return errRolledBack
				}
				if i%10 == 7 {
					_, err := tx.Exec(t.Context(), `PREPARE TRANSACTION '`+pool.Config().ConnConfig.Database+id+`'`)
					return err
				}
				return nil
			})
			if i%10 == 7 { // the commit found no transaction any more
				_, err = pool.Exec(t.Context(), `COMMIT PREPARED '`+pool.Config().ConnConfig.Database+id+`'`)
			}
			if err != nil && !errors.Is(err, errRolledBack) {
				t.Errorf("%s: %v", id, err)
			}
			if err == nil {
				mu.Lock()
				committed[id] = true
				mu.Unlock()
			}
		})
	}
	seen := make(map[string]int)
	r := newTail(t, s)
	reader.Go(func() {
		for over := false; ; {
			got := r.next()
			for _, id := range got {
				seen[id]++
			}
			r.forget(pool)
			if over && len(got) == 0 {
				return
			}
			over = ctx.Err() != nil
		}
	})
	writers.Wait()
	done()
	reader.Wait()
	if len(seen) != len(committed) || len(committed) < 850 {
		t.Errorf("%d messages read, %d committed", len(seen), len(committed))
	}
	for id, n := range seen {
		if !committed[id] || n != 1 {
			t.Errorf("%s was read %d times; committed: %v", id, n, committed[id])
		}
	}
}

// flushStatistics makes the session's statistics known. The pool must have one connection.
func flushStatistics(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
		<-time.After(1200 * time.Millisecond) // PostgreSQL 14 cannot be asked, but does it each second
	}
}

// visited counts the index entries that a read with nothing to find looks at. The pool must have one connection.
func visited(t *testing.T, pool *pgxpool.Pool, r *tail) int64 {
	t.Helper()
	count := func() (n int64) {
		t.Helper()
		flushStatistics(t, pool)
		err := pool.QueryRow(t.Context(), `SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'outbox_pkey' AND schemaname = 'millbridge'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	r.wants()
	r.peek(r.Look(r.params()))
	return count() - before
}

// To plan a look takes longer than the look.
func TestPeek_is_planned_once(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	pool = direct(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 }) // the plans of one session
	s := postgres.New(pool, postgres.Options{})
	r := newTail(t, s)
	r.wants()
	for range 20 {
		r.peek(r.Look(r.params()))
	}
	var custom int
	err := pool.QueryRow(t.Context(), `SELECT sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '%millbridge.outbox%'`).Scan(&custom)
	if err != nil || custom != 0 {
		t.Errorf("%d looks were planned, %v", custom, err)
	}
}

// Rows that were sent cost nothing, even while an old snapshot keeps vacuum from removing them.
func TestReader_does_not_walk_over_dead_rows(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	pool = repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 }) // statistics of one session
	s := postgres.New(pool, postgres.Options{})
	other := repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 2 })
	old := begin(t, other, pgx.RepeatableRead)
	if _, err := old.Exec(t.Context(), `SELECT 1 FROM millbridge.meta`); err != nil {
		t.Fatal(err)
	}
	r := newTail(t, s)
	r.afresh = true
	for range 5 {
		envs := make([]schema.Envelope, 900)
		for i := range envs {
			envs[i] = schema.NewJob("crm", "create", nil)
		}
		if err := s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, envs); return err }); err != nil {
			t.Fatal(err)
		}
		if got := r.next(); len(got) != len(envs) {
			t.Fatalf("%d rows, want %d", len(got), len(envs))
		}
		r.forget(pool)
	}
	testkit.Eventually(t, time.Minute, func() error { // when the transactions of other tests have ended
		if n := visited(t, pool, r); n > 50 {
			return fmt.Errorf("a read with nothing to find visits %d index entries, want few", n)
		}
		return nil
	})
	r.Reset()
	if n := visited(t, pool, r); n < 4500 {
		t.Errorf("a read from the start visits %d index entries: this test sees nothing", n)
	}
}

// A read that goes on does not look at rows in flight again. Rows that are not in flight any more are found by one that
// does not.
func TestReader_goes_on(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	pool = repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 }) // statistics of one session
	s := postgres.New(pool, postgres.Options{})
	other := repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 2 })
	late := begin(t, other, pgx.ReadCommitted)
	publish(t, s, late, job("late"))
	envs := make([]schema.Envelope, 4000)
	for i := range envs {
		envs[i] = job(fmt.Sprint(i))
	}
	if err := s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, envs); return err }); err != nil {
		t.Fatal(err)
	}
	r := newTail(t, s)
	for range 5 {
		r.next()
	}
	r.wants()
	if len(r.read) != len(envs) {
		t.Fatalf("%d rows were read, want %d", len(r.read), len(envs))
	}
	r.rest()
	commit(t, late)
	r.wants("late")
	few := func() error { // when the transactions of other tests have ended
		if n := visited(t, pool, r); n > 50 {
			return fmt.Errorf("a read with nothing to find visits %d index entries, want few", n)
		}
		return nil
	}
	testkit.Eventually(t, time.Minute, few)
	r.exclude = slices.DeleteFunc(r.exclude, func(seq int64) bool { return seq == r.read[10].Seq }) // lost on its way
	r.wants()
	r.afresh = true
	r.wants("10")
	if n := visited(t, pool, r); n < 3000 {
		t.Errorf("a read from the start visits %d index entries: this test sees nothing", n)
	}
	r.afresh = false
	testkit.Eventually(t, time.Minute, few)
}

// An open transaction that writes, of whatever kind, holds the floor but no row above it.
func TestReader_old_writer(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	r := newTail(t, s)
	old := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, old, job("old"))
	for i := range 20 {
		tx := begin(t, pool, pgx.ReadCommitted)
		publish(t, s, tx, job(fmt.Sprint(i)))
		commit(t, tx)
		r.wants(fmt.Sprint(i))
		r.forget(pool)
	}
	r.rest()
	commit(t, old)
	r.wants("old")
}

// A writer that stays open for long keeps the floor down, but no read walks over all that was sent meanwhile: only when
// such a writer ends is there anything to find.
func TestReader_old_writer_costs_nothing(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	pool = repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 }) // statistics of one session
	s := postgres.New(pool, postgres.Options{})
	other := repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 3 })
	first, second := begin(t, other, pgx.ReadCommitted), begin(t, other, pgx.ReadCommitted)
	publish(t, s, first, job("first"))
	publish(t, s, second, job("second"))
	r := newTail(t, s)
	send := func() {
		t.Helper()
		for range 5 {
			envs := make([]schema.Envelope, 900)
			for i := range envs {
				envs[i] = schema.NewJob("crm", "create", nil)
			}
			if err := s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, envs); return err }); err != nil {
				t.Fatal(err)
			}
			if got := len(r.next()); got != 900 {
				t.Fatalf("%d rows, want 900", got)
			}
			r.forget(pool)
		}
		testkit.Eventually(t, time.Minute, func() error { // when short transactions of other tests have ended
			if n := visited(t, pool, r); n > 50 {
				return fmt.Errorf("a read with nothing to find visits %d index entries, want few", n)
			}
			return nil
		})
	}
	send()
	commit(t, second)
	r.wants("second")
	r.forget(pool)
	send()
	if n := visited(t, pool, newTail(t, s)); n < 9000 {
		t.Errorf("a read from the start visits %d index entries: this test sees nothing", n)
	}
	commit(t, first)
	r.wants("first")
}

// What a restore or a fail-over may do: numbers come back below what was read before.
func TestReader_notices_another_database(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"recovery": `TRUNCATE millbridge.epoch`, // what the server does when it recovers
		"restart":  `UPDATE millbridge.epoch SET token = gen_random_uuid()`,
		"rest":     `UPDATE millbridge.epoch SET token = gen_random_uuid()`, // a transaction that stays open keeps the floor down
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := setup(t)
			if name == "rest" {
				if _, err := begin(t, pool, pgx.ReadCommitted).Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
					t.Fatal(err)
				}
			}
			r, second := newTail(t, s), newTail(t, s)
			for i := range 5 {
				tx := begin(t, pool, pgx.ReadCommitted)
				publish(t, s, tx, job(fmt.Sprint(i)))
				commit(t, tx)
				r.wants(fmt.Sprint(i))
			}
			r.forget(pool)
			r.rest()
			second.rest()
			for _, sql := range []string{`SELECT setval('millbridge.outbox_seq', 1)`, change} {
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			tx := begin(t, pool, pgx.ReadCommitted)
			publish(t, s, tx, job("again"))
			commit(t, tx)
			r.wants("again")
			second.wants("again")
		})
	}
}

// The database is dropped while readers live, and a copy takes its name: all that the copy says of itself is the same.
func TestReader_notices_a_database_of_the_same_name(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	r := newTail(t, s)
	for i := range 5 {
		tx := begin(t, pool, pgx.ReadCommitted)
		publish(t, s, tx, job(fmt.Sprint(i)))
		commit(t, tx)
		r.wants(fmt.Sprint(i))
	}
	r.forget(pool)
	r.rest()
	if _, err := pool.Exec(t.Context(), `SELECT setval('millbridge.outbox_seq', 1)`); err != nil {
		t.Fatal(err)
	}
	cfg := pool.Config().ConnConfig.Copy()
	name := pgx.Identifier{cfg.Database}.Sanitize()
	old := pgx.Identifier{cfg.Database + "_old"}.Sanitize()
	cfg.Database = "postgres"
	admin, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	for _, sql := range []string{`ALTER DATABASE ` + name + ` RENAME TO ` + old, `CREATE DATABASE ` + name + ` TEMPLATE ` + old, `DROP DATABASE ` + old} {
		testkit.Eventually(t, time.Minute, func() error { // when the pool's connections have ended
			pool.Reset()
			_, err := admin.Exec(t.Context(), sql)
			return err
		})
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, job("again"))
	commit(t, tx)
	r.wants("again")
}

// A writer that stands still between the drawing of its number and the writing of its row is waited for, too: it has a
// transaction id before the number.
func TestReader_waits_for_a_number_without_a_row(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	gate, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	for _, sql := range []string{
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(4, 2); RETURN NEW; END'`,
		`CREATE TRIGGER slow BEFORE INSERT ON millbridge.outbox FOR EACH ROW WHEN (NEW.subject LIKE '%slow') EXECUTE FUNCTION slow()`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	tx := begin(t, pool, pgx.ReadCommitted) // otherwise the sequence itself would see to a transaction id
	publish(t, s, tx, job("first"))
	commit(t, tx)
	if _, err := pool.Exec(t.Context(), `DELETE FROM millbridge.outbox`); err != nil {
		t.Fatal(err)
	}
	slow := func(id string, opts ...schema.Option) schema.Envelope {
		return schema.NewJob("crm", "slow", nil, append(opts, schema.WithID(id))...)
	}
	for _, envs := range [][]schema.Envelope{
		{slow("plain")},
		{slow("keyed", schema.WithKey("k"))},
		{slow("first-of-two"), schema.NewJob("crm", "fast", nil, schema.WithID("second-of-two"))},
		{slow("past", schema.WithDueAt(time.Now().Add(-time.Hour)))},
	} {
		var want []string
		for _, e := range envs {
			want = append(want, e.ID)
		}
		if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_lock(4, 2)`); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			written <- s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, envs); return err })
		}()
		testkit.Eventually(t, time.Minute, func() error {
			var stands bool
			err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database
				WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted AND classid = 4 AND objid = 2)`).Scan(&stands)
			if err == nil && !stands {
				err = errors.New("the writer does not stand still yet")
			}
			return err
		})
		r := newTail(t, s)
		r.rest()
		if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_unlock(4, 2)`); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		r.wants(want...)
		r.forget(pool)
	}
}

// A sequence that nobody has used yet has a last value all the same.
func TestReader_first_row_of_all(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	r := newTail(t, s)
	r.rest()
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, job("first"))
	r.rest()
	commit(t, tx)
	r.wants("first")
}
