package inprocess_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// What a handler writes and publishes in its transaction is there after the commit, and only then.
func TestModeTx_publishes_after_the_commit(t *testing.T) {
	t.Parallel()
	write, store := openSQLite(t)
	if _, err := write.ExecContext(t.Context(), "CREATE TABLE orders (n integer)"); err != nil {
		t.Fatal(err)
	}
	q, _ := newQueue(t, inprocess.Config{Units: store.Unit})
	var got seen
	target(t, q, "mailer", handlers.Policy{}, got.Handle)
	target(t, q, "orders", handlers.Policy{Mode: handlers.ModeTx, Concurrency: 1, Retry: soon}, func(ctx context.Context, env schema.Envelope) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", handlers.Attempt(ctx)); err != nil {
			return err
		}
		receipts, err := handlers.Publish(ctx, job(env.Name, schema.WithKey("k")), job(env.Name, schema.WithKey("k")), job("loose"))
		if err != nil {
			return err
		}
		if !receipts[1].Existing || receipts[1].ID != receipts[0].ID {
			t.Errorf("receipts %+v", receipts)
		}
		if _, err := handlers.Publish(ctx, schema.NewJob("Bad", "x", nil)); !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("a bad message: %v", err)
		}
		if _, err := handlers.Publish(ctx, schema.NewJob("mailer", env.Name, "other", schema.WithKey("k"))); !errors.Is(err, schema.ErrKeyReused) {
			t.Errorf("a reused key: %v", err)
		}
		if tally := len(got.names()); tally != 0 {
			t.Errorf("%d messages went before the commit", tally)
		}
		if handlers.Attempt(ctx) == 1 {
			return errDown
		}
		return nil
	})
	publish(t, q, schema.NewJob("orders", "place", nil, schema.WithTenant("t")))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 3, Retried: 1})
	var rows, attempt int
	if err := write.QueryRowContext(t.Context(), "SELECT count(*), max(n) FROM orders").Scan(&rows, &attempt); err != nil || rows != 1 || attempt != 2 {
		t.Errorf("%d rows, last of attempt %d, error %v", rows, attempt, err)
	}
	names := got.names()
	slices.Sort(names)
	if !slices.Equal(names, []string{"loose", "place"}) || got.envs[0].Tenant != "t" {
		t.Errorf("published %v: %+v", names, got.envs)
	}
	if rows, err := store.ListOutbox(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 0 {
		t.Errorf("%d rows went to the outbox, error %v", len(rows), err)
	}
}

// A key that somebody takes while the transaction is open must not swallow what it has published.
func TestModeTx_parks_what_clashes_after_the_commit(t *testing.T) {
	t.Parallel()
	_, store := openSQLite(t)
	q, _ := newQueue(t, inprocess.Config{Units: store.Unit})
	var got seen
	target(t, q, "mailer", handlers.Policy{}, got.Handle)
	target(t, q, "orders", handlers.Policy{Mode: handlers.ModeTx}, func(ctx context.Context, _ schema.Envelope) error {
		_, err := handlers.Publish(ctx, schema.NewJob("mailer", "send", "mine", schema.WithKey("k")), job("same", schema.WithKey("s")))
		return errors.Join(err, func() error {
			_, err := q.Publish(ctx, struct{}{}, schema.NewJob("mailer", "send", "theirs", schema.WithKey("k")), job("same", schema.WithKey("s")))
			return err
		}())
	})
	publish(t, q, schema.NewJob("orders", "place", nil))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 3, Parked: 1})
	if p := q.Parked(); len(p) != 1 || string(p[0].Envelope.Payload) != `"mine"` {
		t.Errorf("parked %+v", p)
	}
	handlertest.DrainUntilEmpty(t, q)
	if len(q.Parked()) != 1 {
		t.Error("what clashed went on its way later")
	}
}

func TestModeTx_failures_of_the_transaction_are_failed_attempts(t *testing.T) {
	t.Parallel()
	n := 0
	q, _ := newQueue(t, inprocess.Config{Units: func(_ context.Context, fn func(schema.Unit) error) error {
		switch n++; n {
		case 1:
			return errDown // it does not begin
		case 2:
			panic("a bug of the store")
		}
		if err := fn(nil); err != nil || n > 3 {
			return err
		}
		return schema.ErrRetryTransaction // it does not commit
	}})
	runs := 0
	target(t, q, "mailer", handlers.Policy{Mode: handlers.ModeTx}, func(context.Context, schema.Envelope) error {
		runs++
		return nil
	})
	publish(t, q, job("send"))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 1, Retried: 3})
	if runs != 2 {
		t.Errorf("%d runs of the handler, want 2", runs)
	}
}
