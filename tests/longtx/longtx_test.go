package longtx

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// Whatever stays open, the messages of others flow at once, also from a forwarder that starts meanwhile. What the open
// transaction has published follows when it commits, in the order of its keys.
func TestLongTransaction(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w *world) (end func()){
		"a writer":                            writer,
		"a writer that is undone":             undone,
		"a prepared transaction":              prepared,
		"a writer in another database":        elsewhere,
		"a reader with a snapshot":            reader,
		"a writer that has published nothing": silent,
		"a serializable writer, a savepoint":  serializable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Postgres(t))
			w.trade(300 * time.Millisecond)
			w.all("before")
			end := begin(w)
			last := open(t, 1500*time.Millisecond)
			w.trade(last / 2)
			w.all("while it is open")
			w.stop()
			w.forward()
			w.trade(last / 2)
			w.all("while it is open, after a restart")
			end()
			w.all("after its end")
			w.trade(300 * time.Millisecond)
			w.all("afterwards")
		})
	}
}

// held is a key that only the open transactions publish with.
const held = "held"

// writer publishes with and without an ordering key and stays open.
func writer(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{})
	w.must(w.publish(w.t.Context(), tx, messages(4, held)...))
	w.must(w.publish(w.t.Context(), tx, messages(4, "")...))
	w.keyIsHeld()
	return func() {
		w.must(tx.Commit(w.t.Context()))
		w.follow()
	}
}

func undone(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{})
	w.must(w.publish(w.t.Context(), tx, messages(4, held)...))
	w.keyIsHeld()
	return func() {
		w.must(tx.Rollback(w.t.Context()))
		w.follow()
	}
}

// prepared belongs to no connection. It keeps its locks, and would keep them through a restart of the server.
func prepared(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{})
	w.must(w.publish(w.t.Context(), tx, messages(4, held)...))
	w.must(w.publish(w.t.Context(), tx, messages(4, "")...))
	name := "'" + w.pool.Config().ConnConfig.Database + "'" // of the server, which tests share
	_, err := tx.Exec(w.t.Context(), `PREPARE TRANSACTION `+name)
	w.must(err)
	w.must(tx.Commit(w.t.Context())) // of nothing: it only gives the connection back
	w.t.Cleanup(func() { _, _ = w.pool.Exec(context.Background(), `ROLLBACK PREPARED `+name) })
	w.keyIsHeld()
	return func() {
		_, err := w.pool.Exec(w.t.Context(), `COMMIT PREPARED `+name)
		w.must(err)
		w.follow()
	}
}

// elsewhere has a transaction id, and those are of the whole server.
func elsewhere(w *world) (end func()) {
	tx := w.begin(testkit.EmptyPostgres(w.t), pgx.TxOptions{})
	_, err := tx.Exec(w.t.Context(), `CREATE TABLE something AS SELECT pg_current_xact_id()`)
	w.must(err)
	return func() { w.must(tx.Commit(w.t.Context())) }
}

func reader(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	var before, after int
	w.must(tx.QueryRow(w.t.Context(), `SELECT count(*) FROM proof_committed`).Scan(&before))
	return func() {
		w.must(tx.QueryRow(w.t.Context(), `SELECT count(*) FROM proof_committed`).Scan(&after))
		if before != after {
			w.t.Error("the reader had no snapshot: this test sees nothing")
		}
		w.must(tx.Commit(w.t.Context()))
	}
}

// silent holds a transaction id, and the lock of a table that nobody needs.
func silent(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{})
	_, err := tx.Exec(w.t.Context(), `CREATE TABLE something AS SELECT pg_current_xact_id()`)
	w.must(err)
	return func() { w.must(tx.Rollback(w.t.Context())) }
}

func serializable(w *world) (end func()) {
	tx := w.begin(w.pool, pgx.TxOptions{IsoLevel: pgx.Serializable})
	w.must(w.publish(w.t.Context(), tx, messages(2, held)...))
	point, err := tx.Begin(w.t.Context())
	w.must(err)
	w.must(w.publish(w.t.Context(), point, messages(2, "")...))
	w.must(point.Rollback(w.t.Context()))
	w.keyIsHeld()
	return func() {
		w.must(tx.Commit(w.t.Context()))
		w.follow()
	}
}

// keyIsHeld shows that others who publish with the key wait: that alone keeps its order.
func (w *world) keyIsHeld() {
	w.t.Helper()
	err := w.store.InTx(w.t.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.t.Context(), `SET LOCAL lock_timeout = '100ms'`); err != nil {
			return err
		}
		return w.publish(w.t.Context(), tx, messages(1, held)...)
	})
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "55P03" {
		w.t.Fatalf("another one publishes with the key: %v; want it to wait for the lock", err)
	}
	if schema.KindOf(err) == schema.Permanent {
		w.t.Errorf("waiting for a key is called permanent: %v", err)
	}
}

// follow publishes with the key after the transaction that held it.
func (w *world) follow() {
	w.t.Helper()
	for range 3 {
		w.must(w.store.InTx(w.t.Context(), func(tx pgx.Tx) error { return w.publish(w.t.Context(), tx, messages(4, held)...) }))
	}
}
