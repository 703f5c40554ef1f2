package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

func setup(t testing.TB) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	pool := testkit.Postgres(t)
	return postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)}), pool
}

func begin(t testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func publish(t testing.TB, s *postgres.Store, tx pgx.Tx, envs ...schema.Envelope) []schema.Receipt {
	t.Helper()
	receipts, err := s.Append(t.Context(), tx, envs)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// blocked waits until n statements of the test's database wait for a lock.
func blocked(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err == nil && waiting != n {
			err = fmt.Errorf("%d statements wait for a lock, want %d", waiting, n)
		}
		return err
	})
}

func ids(t testing.TB, rows []schema.Row) []string {
	t.Helper()
	got := make([]string, len(rows))
	for i, r := range rows {
		e, err := r.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		got[i] = e.ID
	}
	return got
}

func outbox(t testing.TB, s *postgres.Store) []string {
	t.Helper()
	rows, err := s.ListOutbox(t.Context(), schema.RowFilter{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return ids(t, rows)
}

// The second of two transactions with one key waits for the first and answers by how that ends.
func TestAppend_waits_for_the_first_use_of_a_key(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit bool
		body   string
		err    error
		alone  bool // no other message in the call
	}{
		"commit":               {commit: true, body: "x"},
		"other content":        {commit: true, body: "y", err: schema.ErrKeyReused},
		"rollback":             {body: "y"},
		"commit, alone":        {commit: true, body: "x", alone: true},
		"other content, alone": {commit: true, body: "y", err: schema.ErrKeyReused, alone: true},
		"rollback, alone":      {body: "y", alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := setup(t)
			first, second := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
			a := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
			b := schema.NewJob("crm", "create", []byte(c.body), schema.WithKey("k"))
			other := schema.NewJob("crm", "create", nil, schema.WithKey("other"))
			publish(t, s, first, a)
			call := []schema.Envelope{b, other}
			if c.alone {
				call = call[:1]
			}
			var receipts []schema.Receipt
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { receipts, err = s.Append(t.Context(), second, call) })
			blocked(t, pool, 1)
			if c.commit {
				commit(t, first)
			} else if err := first.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			commit(t, second) // whatever was written would be seen
			want := []string{b.ID, other.ID}
			switch {
			case c.err != nil:
				want = []string{a.ID}
			case c.commit:
				want = []string{a.ID, other.ID}
				if receipts[0] != (schema.Receipt{ID: a.ID, Existing: true}) {
					t.Errorf("receipt %+v, want the first message's", receipts[0])
				}
			}
			if c.alone {
				want = want[:1]
			}
			if got := outbox(t, s); !slices.Equal(got, want) {
				t.Errorf("outbox %v, want %v", got, want)
			}
			if c.err != nil {
				var keys int
				if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM millbridge.keys`).Scan(&keys); err != nil || keys != 1 {
					t.Errorf("%d keys, %v; want the first one's only", keys, err)
				}
			}
		})
	}
}

// At REPEATABLE READ a key that was committed after the snapshot cannot be looked at.
func TestAppend_at_repeatable_read(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s, pool := setup(t)
			e := schema.NewJob("crm", "create", nil, schema.WithKey("k"))
			late := begin(t, pool, level)
			if _, err := late.Exec(t.Context(), `SELECT 1 FROM millbridge.meta`); err != nil { // takes the snapshot
				t.Fatal(err)
			}
			first := begin(t, pool, pgx.ReadCommitted)
			publish(t, s, first, e)
			commit(t, first)
			again := schema.NewJob("crm", "create", nil, schema.WithKey("k"))
			_, err := s.Append(t.Context(), late, []schema.Envelope{again})
			if !errors.Is(err, schema.ErrRetryTransaction) || schema.KindOf(err) != schema.Temporary {
				t.Fatalf("error %v of kind %v, want one that asks for another try", err, schema.KindOf(err))
			}
			if err := late.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			retry := begin(t, pool, level)
			if got := publish(t, s, retry, again); got[0] != (schema.Receipt{ID: e.ID, Existing: true}) {
				t.Errorf("receipt %+v, want the first message's", got[0])
			}
			publish(t, s, retry, schema.NewJob("crm", "create", nil, schema.WithOrderingKey("o")), schema.NewJob("crm", "x", nil, schema.WithKey("l")))
			commit(t, retry)
			if got := outbox(t, s); len(got) != 3 {
				t.Errorf("outbox %v, want 3 messages", got)
			}
		})
	}
}

func TestAppend_deadlock_asks_for_another_try(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	a, b := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	job := func(key string) schema.Envelope {
		return schema.NewJob("crm", "create", nil, schema.WithOrderingKey(key))
	}
	publish(t, s, a, job("1"))
	publish(t, s, b, job("2"))
	errs := make(chan error, 2)
	for tx, key := range map[pgx.Tx]string{a: "2", b: "1"} {
		go func() {
			_, err := s.Append(t.Context(), tx, []schema.Envelope{job(key)})
			if err != nil {
				_ = tx.Rollback(context.Background())
			}
			errs <- err
		}()
	}
	one, two := <-errs, <-errs
	if one == nil {
		one, two = two, one
	}
	if two != nil || !errors.Is(one, schema.ErrRetryTransaction) || schema.KindOf(one) != schema.Temporary {
		t.Errorf("errors %v and %v, want one to succeed and one to be asked for another try", one, two)
	}
}

// All keys of one call are taken in one order, whatever order they are given in: no deadlock.
func TestAppend_many_keys_in_one_call(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 15 {
				var envs []schema.Envelope
				for k := range 20 {
					key := fmt.Sprint((k*(2*i+1) + n) % 20)
					envs = append(envs, schema.NewJob("crm", "create", []byte(key), schema.WithOrderingKey(key), schema.WithKey(fmt.Sprint(n, "/", key))))
				}
				if err := s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, envs); return err }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := outbox(t, s); len(got) != 15*20 {
		t.Errorf("%d messages, want %d", len(got), 15*20)
	}
}

// A later transaction of the same ordering key waits, so that its sequence is higher.
func TestAppend_keeps_the_order_of_commits(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	first, second := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	job := func(id string, opts ...schema.Option) schema.Envelope {
		return schema.NewJob("crm", "create", nil, append(opts, schema.WithID(id), schema.WithOrderingKey("k"))...)
	}
	third, fourth := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	publish(t, s, first, job("1"))
	// Other tenants, targets and streams have keys of their own and do not wait.
	publish(t, s, second, job("tenant", schema.WithTenant("t")), schema.NewJob("erp", "a", nil, schema.WithOrderingKey("k"), schema.WithID("target")),
		schema.NewEvent("a", nil, schema.WithOrderingKey("k"), schema.WithID("event")), schema.NewJob("crm", "a", nil, schema.WithID("none")))
	ended := make(chan error)
	for i, w := range []struct {
		tx   pgx.Tx
		envs []schema.Envelope
	}{{second, []schema.Envelope{job("4")}}, {third, []schema.Envelope{job("5", schema.WithKey("x"))}}, {fourth, []schema.Envelope{job("6"), job("7")}}} {
		go func() {
			_, err := s.Append(t.Context(), w.tx, w.envs)
			if err == nil {
				err = w.tx.Commit(t.Context())
			}
			ended <- err
		}()
		blocked(t, pool, i+1) // so that they get the lock one after the other
	}
	publish(t, s, first, job("2"), job("3"))
	commit(t, first)
	for range 3 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	got := slices.DeleteFunc(outbox(t, s), func(id string) bool { return len(id) > 1 })
	if want := []string{"1", "2", "3", "4", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestAppend_savepoint(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, schema.NewEvent("a", nil, schema.WithID("1")))
	inner, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, inner, schema.NewEvent("a", nil, schema.WithID("2"), schema.WithKey("k")))
	if err := inner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, s, tx, schema.NewEvent("a", nil, schema.WithID("3"), schema.WithKey("k")))
	commit(t, tx)
	if got, want := outbox(t, s), []string{"1", "3"}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}

func TestAppendBatch(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (n integer)`); err != nil {
		t.Fatal(err)
	}
	// send puts an order before the messages and another after them, in one round trip.
	send := func(envs ...schema.Envelope) (receipts []schema.Receipt, sent, told error) {
		t.Helper()
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO orders VALUES (1)`)
		err := s.AppendBatch(b, envs, func(r []schema.Receipt, err error) { receipts, told = r, err })
		if err != nil {
			return nil, err, nil
		}
		b.Queue(`INSERT INTO orders VALUES (2)`)
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return tx.SendBatch(t.Context(), b).Close() })
		return receipts, err, told
	}
	orders := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"), schema.WithOrderingKey("o"))
	b := schema.NewJob("crm", "create", []byte("x"), schema.WithKey("k"))
	c := schema.NewJob("crm", "create", nil, schema.WithDueAt(time.Now().Add(time.Hour)))
	receipts, sent, told := send(a, b, c)
	want := []schema.Receipt{{ID: a.ID}, {ID: a.ID, Existing: true}, {ID: c.ID}}
	if sent != nil || told != nil || !slices.Equal(receipts, want) || orders() != 2 {
		t.Fatalf("receipts %+v, errors %v and %v, %d orders; want %+v and 2", receipts, sent, told, orders(), want)
	}
	if receipts, sent, told = send(b); sent != nil || told != nil || receipts[0] != (schema.Receipt{ID: a.ID, Existing: true}) {
		t.Fatalf("receipts %+v, errors %v and %v", receipts, sent, told)
	}
	for name, bad := range map[string]struct {
		env  schema.Envelope
		want error
	}{
		"reused":  {schema.NewJob("crm", "create", []byte("y"), schema.WithKey("k")), schema.ErrKeyReused},
		"invalid": {schema.NewJob("CRM", "create", nil), schema.ErrInvalid},
	} {
		before := orders()
		receipts, sent, told = send(schema.NewEvent("a", nil), bad.env)
		if !errors.Is(sent, bad.want) || receipts != nil || (name == "reused") != errors.Is(told, bad.want) || orders() != before {
			t.Errorf("%s: receipts %+v, errors %v and %v, %d orders; want %v and nothing written", name, receipts, sent, told, orders(), bad.want)
		}
	}
	// The limit may be unknown when the batch is made, but not when it is sent.
	other := postgres.New(pool, postgres.Options{})
	if err := other.SetMaxPayload(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	s = postgres.New(pool, postgres.Options{})
	if _, sent, told = send(schema.NewEvent("a", []byte("more than ten"))); !errors.Is(sent, schema.ErrInvalid) || !errors.Is(told, schema.ErrInvalid) {
		t.Errorf("errors %v and %v, want the new limit", sent, told)
	}
	if got, want := outbox(t, s), []string{a.ID}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
	if err := s.AppendBatch(&pgx.Batch{}, nil, nil); err != nil {
		t.Errorf("no envelopes: %v", err)
	}
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
