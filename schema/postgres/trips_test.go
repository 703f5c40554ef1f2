package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// trips counts what is sent to the server: queries, batches, and statements that are prepared.
type trips struct{ sent, statements, prepared int }

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.sent, c.statements = c.sent+1, c.statements+1
	return ctx
}
func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	c.sent, c.statements = c.sent+1, c.statements+d.Batch.Len()
	return ctx
}
func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *trips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	c.prepared++
	return ctx
}
func (*trips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// Publishing is one round trip and one statement, whatever the number of messages, with statements that are known after
// their first use.
func TestAppend_is_one_statement(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	count := &trips{}
	pool = repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 1 })
	s := postgres.New(pool, postgres.Options{})
	messages := func(n int, opts func(i int) []schema.Option) (envs []schema.Envelope) {
		for i := range n {
			envs = append(envs, schema.NewJob("crm", "create", nil, opts(i)...))
		}
		return envs
	}
	plain := func(int) []schema.Option { return nil }
	ordered := func(i int) []schema.Option { return []schema.Option{schema.WithOrderingKey(fmt.Sprint(i % 7))} }
	keyed := func(int) []schema.Option { return []schema.Option{schema.WithKey(schema.NewID())} }
	used := func(int) []schema.Option { return []schema.Option{schema.WithKey("used")} }
	later := func(int) []schema.Option { return []schema.Option{schema.WithDelay(time.Hour)} }
	one := trips{sent: 1, statements: 1}
	for _, c := range []struct {
		name string
		n    int
		opts func(i int) []schema.Option
		want trips
	}{
		{"one", 1, plain, one},
		{"one ordered", 1, ordered, one},
		{"one with a new key", 1, keyed, one},
		{"one with a used key", 1, used, trips{sent: 2, statements: 2}},
		{"one for later", 1, later, one},
		{"two", 2, plain, one},
		{"thousand", 1000, plain, one},
		{"thousand ordered", 1000, ordered, one},
		{"thousand for later", 1000, later, one},
		{"thousand with new keys", 1000, keyed, trips{sent: 1, statements: 4}},
	} {
		var got trips
		for range 3 { // the first times prepare the statements
			tx := begin(t, pool, pgx.ReadCommitted)
			*count = trips{}
			publish(t, s, tx, messages(c.n, c.opts)...)
			got = *count
			commit(t, tx)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The claim of a key that is new is one round trip and one statement beside the handler's own.
func TestClaimTx_is_one_statement(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	count := &trips{}
	pool = repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 1 })
	s := postgres.New(pool, postgres.Options{})
	for i := range 2 { // the first time prepares the statement
		tx := begin(t, pool, pgx.ReadCommitted)
		r := run("worker")
		r.Key.Key = fmt.Sprint(i)
		*count = trips{}
		res, err := s.ClaimTx(t.Context(), tx, r)
		if err != nil || res.Claim != schema.ClaimRun || res.Record.State != schema.InboxDone || res.Record.UpdatedAt.IsZero() {
			t.Errorf("claim %+v, %v", res, err)
		}
		if want := (trips{sent: 1, statements: 1}); i > 0 && *count != want {
			t.Errorf("%+v, want %+v", *count, want)
		}
		commit(t, tx)
	}
}

// A transaction of a handler begins in the round trip of its claim: it takes one more than the handler's own statements
// and their COMMIT.
func TestUnit_begins_with_its_first_statement(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	count := &trips{}
	pool = repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 1 })
	s := postgres.New(pool, postgres.Options{})
	for i := range 2 { // the first time prepares the statements
		r := run("worker")
		r.Key.Key = fmt.Sprint(i)
		*count = trips{}
		err := s.Unit(t.Context(), func(u schema.Unit) error {
			if res, err := u.Claim(t.Context(), r); err != nil || res.Claim != schema.ClaimRun {
				return fmt.Errorf("claim %+v, %w", res, err)
			}
			_, err := u.Tx().(pgx.Tx).Exec(t.Context(), `SELECT 1`)
			return err
		})
		if want := (trips{sent: 3, statements: 4}); err != nil || i > 0 && *count != want {
			t.Errorf("%+v, %v, want %+v", *count, err, want)
		}
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are not given back", n)
	}
}

// What a unit does before anything else begins its transaction, and nothing at all does, too: it says whether the
// database would. What fails on the way leaves no trace and no connection behind.
func TestUnit_begins_whatever_comes_first(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	pool = repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := postgres.New(pool, postgres.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the pool has one connection: who leaks it waits
	defer cancel()
	count := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM millbridge.outbox`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	write := func(u schema.Unit) error {
		_, err := u.Append(ctx, []schema.Envelope{schema.NewJob("crm", "create", nil)})
		return err
	}
	unfit, errAny := errors.New("unfit"), errors.New("any error")
	unclaimable := run("worker")
	unclaimable.Key.Handler = "a\x00" // which the server takes for no text
	for _, c := range []struct {
		name string
		do   func(u schema.Unit) error
		rows int
		want error
	}{
		{"nothing", func(schema.Unit) error { return nil }, 0, nil},
		{"an error", func(schema.Unit) error { return unfit }, 0, unfit},
		{"append", write, 1, nil},
		{"append and an error", func(u schema.Unit) error { return errors.Join(write(u), unfit) }, 0, unfit},
		{"its transaction", func(u schema.Unit) error {
			tx := u.Tx().(pgx.Tx)
			nested, err := tx.Begin(t.Context())
			if err != nil {
				return err
			}
			return errors.Join(write(u), nested.Rollback(t.Context()), write(u))
		}, 1, nil},
		{"try", func(u schema.Unit) error {
			if err := u.Try(t.Context(), func() error { return errors.Join(write(u), unfit) }); !errors.Is(err, unfit) {
				return fmt.Errorf("tried: %w", err)
			}
			return write(u)
		}, 1, nil},
		{"a claim that fails", func(u schema.Unit) error {
			_, err := u.Claim(t.Context(), unclaimable)
			if err == nil {
				t.Error("a handler with a zero byte is claimed")
			}
			if errs := write(u); errs == nil {
				t.Error("a transaction that has failed goes on")
			}
			return unfit
		}, 0, unfit},
		{"an error that is kept", func(u schema.Unit) error {
			_, _ = u.Claim(t.Context(), unclaimable)
			return nil
		}, 0, errAny},
		{"no connection at first", func(u schema.Unit) error {
			held, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			_, err = u.Append(soon, []schema.Envelope{schema.NewJob("crm", "create", nil)})
			cancel()
			held.Release()
			if !errors.Is(err, schema.ErrNoConns) || write(u) == nil {
				t.Errorf("without a connection: %v; then it goes on", err)
			}
			return nil // as if all were well
		}, 0, schema.ErrNoConns},
	} {
		before := count()
		var kept schema.Unit
		err := s.Unit(t.Context(), func(u schema.Unit) error {
			kept = u
			return c.do(u)
		})
		if !errors.Is(err, c.want) && (c.want != errAny || err == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if write(kept) == nil {
			t.Errorf("%s: it writes after its end", c.name)
			_ = kept.Tx().(pgx.Tx).Rollback(ctx) // it has the only connection
		}
		if n := count() - before; n != c.rows {
			t.Errorf("%s: %d rows, want %d", c.name, n, c.rows)
		}
	}
	held, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, do := range map[string]func(u schema.Unit) error{"nothing": func(schema.Unit) error { return nil }, "append": write} {
		if err := s.Unit(ctx, do); !errors.Is(err, schema.ErrNoConns) || schema.KindOf(err) != schema.Temporary {
			t.Errorf("%s, without a connection: %v", name, err)
		}
	}
}
