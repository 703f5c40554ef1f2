package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// A snapshot names transactions that were open when the last one to end ended, and none that came later. A floor that
// trusts it passes by the row of such a transaction until a restart, and what follows in its ordering key overtakes it.
func TestReader_floor_waits_for_transactions_that_no_snapshot_names(t *testing.T) {
	t.Parallel()
	pool := privateServer(t) // elsewhere the transactions of other tests end in between
	server := testkit.NATS(t)
	w := &floorWorld{t: t, pool: pool, server: server, book: proof.OnPostgres(pool)}
	if err := errors.Join(w.book.Create(t.Context()), jetstream.EnsureStreams(t.Context(), server.JetStream(t), jetstream.StreamsConfig{})); err != nil {
		t.Fatal(err)
	}
	store := postgres.New(pool, postgres.Options{})
	for try := range 3 {
		w.late(store, fmt.Sprint("as it is ", try))
		if r := w.check(); len(r.Faults(true)) > 0 || r.Waiting > 0 {
			t.Fatalf("%s: %v", r, r.Faults(true))
		}
	}
	broken := postgres.New(pool, postgres.Options{})
	broken.ObserveWithoutTransaction()
	for try := range 20 {
		left := w.late(broken, fmt.Sprint("rule off ", try))
		r := w.check()
		t.Log("rule off:", left, "was left behind;", r)
		if left > 0 && len(r.Reordered) > 0 {
			return
		}
	}
	t.Error("the rule is off and nothing goes wrong")
}

type floorWorld struct {
	t      *testing.T
	pool   *pgxpool.Pool
	server *testkit.Server
	book   *proof.Book
}

// late commits a row long after its number was drawn, and another one behind it with the same ordering key. It returns
// how many rows had not moved when the second one was sent. Then the forwarder starts anew.
func (w *floorWorld) late(store *postgres.Store, key string) (left int) {
	w.t.Helper()
	_, stop := w.forward(store)
	first := begin(w.t, w.pool, pgx.ReadCommitted)
	w.publish(first, store, key)
	<-time.After(2500 * time.Millisecond) // two reads of an idle shard, with an observation between them
	commit(w.t, first)
	second := begin(w.t, w.pool, pgx.ReadCommitted)
	e := w.publish(second, store, key)
	commit(w.t, second)
	testkit.Eventually(w.t, time.Minute, func() error {
		var there bool
		err := w.pool.QueryRow(w.t.Context(), `SELECT EXISTS (SELECT FROM millbridge.outbox WHERE id::text = $1)`, e.ID).Scan(&there)
		if err == nil && there {
			err = errors.New("the second row has not been sent")
		}
		return err
	})
	left = w.check().Waiting
	stop()
	f, stop := w.forward(store)
	defer stop()
	testkit.Eventually(w.t, time.Minute, func() error {
		if r := w.check(); r.Waiting > 0 {
			return fmt.Errorf("%s; forwarder: %+v", r, f.Status())
		}
		return nil
	})
	return left
}

func (w *floorWorld) forward(store *postgres.Store) (f *jetstream.Forwarder, stop func()) {
	w.t.Helper()
	// No renewal of a lease is to end in between, either.
	f, err := jetstream.NewForwarder(jetstream.StoreOf(store), w.server.Conn(w.t), jetstream.ForwarderConfig{Lease: time.Hour, TendEvery: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	testkit.Eventually(w.t, time.Minute, func() error {
		status := f.Status()
		for _, s := range status {
			if s.State != jetstream.ShardRunning {
				return fmt.Errorf("shard %v is %s", s.ShardRef, s.State)
			}
		}
		if len(status) == 0 {
			return errors.New("no shards yet")
		}
		return nil
	})
	return f, func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *floorWorld) publish(tx pgx.Tx, store *postgres.Store, key string) schema.Envelope {
	w.t.Helper()
	e := schema.NewJob("crm", "create", nil, schema.WithOrderingKey(key))
	publish(w.t, store, tx, e)
	if err := w.book.EnterPostgres(w.t.Context(), tx, e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *floorWorld) check() proof.Report {
	w.t.Helper()
	r, err := w.book.Check(w.t.Context(), w.server.JetStream(w.t), schema.Subjects{})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}
