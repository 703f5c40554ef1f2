package longtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// open is how long a transaction stays open: a moment, or what MILLBRIDGE_STRESS says.
func open(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv("MILLBRIDGE_STRESS")
	if v == "" {
		return short
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("MILLBRIDGE_STRESS: %v", err)
	}
	return d
}

// A world is a database, a broker and a forwarder that runs between them.
type world struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *postgres.Store
	nc    *nats.Conn
	js    natsjs.JetStream
	book  *proof.Book
	stop  func()
	hold  atomic.Bool // removals wait

	published atomic.Int64
	mu        sync.Mutex
	took      []time.Duration // from the commit of a message to its removal from the outbox
}

func newWorld(t *testing.T, pool *pgxpool.Pool) *world {
	t.Helper()
	w := &world{
		t: t, pool: pool, store: postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)}), nc: testkit.NATS(t).Conn(t), book: proof.OnPostgres(pool),
	}
	w.js = testkit.JetStream(t, w.nc)
	if err := errors.Join(w.book.Create(t.Context()), jetstream.EnsureStreams(t.Context(), w.js, jetstream.StreamsConfig{})); err != nil {
		t.Fatal(err)
	}
	w.forward()
	t.Cleanup(func() { w.stop() })
	return w
}

// forward starts a forwarder; the one before must have been stopped.
func (w *world) forward() {
	w.t.Helper()
	f, err := jetstream.NewForwarder(holding{jetstream.StoreOf(w.store), w}, w.nc, jetstream.ForwarderConfig{Logger: testkit.Logger(w.t), RetryMax: 200 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// holding is a store whose removals can be held up, and with them the commits that bring all before them to disk.
type holding struct {
	jetstream.Store
	w *world
}

func (h holding) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	for h.w.hold.Load() && ctx.Err() == nil {
		<-time.After(5 * time.Millisecond)
	}
	return h.Store.Remove(ctx, p)
}

// publish publishes envs in tx.
func (w *world) publish(ctx context.Context, tx pgx.Tx, envs ...schema.Envelope) error {
	if _, err := w.store.Append(ctx, tx, envs); err != nil {
		return err
	}
	return w.book.EnterPostgres(ctx, tx, envs...)
}

// begin opens a transaction on a connection of its own.
func (w *world) begin(pool *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	w.t.Helper()
	tx, err := pool.BeginTx(w.t.Context(), opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// messages makes some of both streams with one ordering key or, with an empty one, none.
func messages(n int, key string) (envs []schema.Envelope) {
	for i := range n {
		if i%2 == 0 {
			envs = append(envs, schema.NewJob("shop", "order.paid", i, schema.WithOrderingKey(key)))
		} else {
			envs = append(envs, schema.NewEvent("order.paid", i, schema.WithOrderingKey(key)))
		}
	}
	return envs
}

// trade commits messages, ordered and not, for a while, and waits for some of them to be sent.
func (w *world) trade(d time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := ""
				if n%2 == 0 {
					key = fmt.Sprintf("key-%d", rand.IntN(8))
				}
				envs := messages(1+rand.IntN(6), key)
				err := w.store.InTx(w.t.Context(), func(tx pgx.Tx) error { return w.publish(w.t.Context(), tx, envs...) })
				if err != nil {
					w.t.Error(err)
					return
				}
				w.published.Add(int64(len(envs)))
				if i == 0 {
					w.sample(envs[0])
				}
				<-time.After(rand.N(10 * time.Millisecond))
			}
		})
	}
	group.Wait()
}

// sample waits until a message has gone out of the outbox and notes how long that took.
func (w *world) sample(e schema.Envelope) {
	began := time.Now()
	for {
		var waits bool
		if err := w.pool.QueryRow(w.t.Context(), `SELECT EXISTS (SELECT FROM millbridge.outbox WHERE id::text = $1)`, e.ID).Scan(&waits); err != nil {
			w.t.Error(err)
			return
		}
		if took := time.Since(began); !waits || took > time.Minute {
			w.mu.Lock()
			w.took = append(w.took, took)
			w.mu.Unlock()
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

// pace says how long messages took since it was called last.
func (w *world) pace() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := w.took
	w.took = nil
	if len(took) == 0 {
		return "none"
	}
	last := took[max(0, len(took)-20):]
	end := slices.Clone(last)
	slices.Sort(end)
	slices.Sort(took)
	return fmt.Sprintf("%d samples: median %v, worst %v; at the end median %v", len(took), took[len(took)/2].Round(time.Millisecond),
		took[len(took)-1].Round(time.Millisecond), end[len(end)/2].Round(time.Millisecond))
}

// all waits until every message that was committed is in its stream, once and in order.
func (w *world) all(when string) {
	w.t.Helper()
	testkit.Eventually(w.t, 5*time.Minute, func() error {
		r, err := w.book.Check(w.t.Context(), w.js, schema.Subjects{})
		if err == nil && (r.Waiting > 0 || len(r.Both) > 0) {
			err = fmt.Errorf("%s: %s", when, r)
		}
		return err
	})
	r, err := w.book.Check(w.t.Context(), w.js, schema.Subjects{})
	w.must(err)
	if found := r.Faults(true); len(found) > 0 {
		w.t.Fatalf("%s: %s: %v", when, r, found)
	}
	w.t.Logf("%s: %s; %s", when, r, w.pace())
}
