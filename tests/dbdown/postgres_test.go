package dbdown

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// server starts a server of the test's own with a database that is migrated.
func server(t *testing.T, opts pgserver.Options) *pgserver.Server {
	t.Helper()
	s, err := pgserver.StartWith(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := pool(t, s.URL(), nil)
	if _, _, err := postgres.New(pool, postgres.Options{}).MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// pool opens a pool that ends with the test.
func pool(t *testing.T, url string, edit func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 12
	if edit != nil {
		edit(cfg)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// onPostgres runs a bridge and an application that share a pool. watch is for the test's own questions.
func onPostgres(t *testing.T, shared, watch *pgxpool.Pool, edits ...func(*router.Config)) *world {
	t.Helper()
	st := postgres.New(shared, postgres.Options{Logger: logger(t)})
	t.Cleanup(st.Close)
	outbox := publishers.NewOutbox(st, publishers.Config{})
	w := &world{t: t, pg: st, book: proof.OnPostgres(watch), conn: testkit.NATS(t).Conn(t)}
	if err := w.book.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.publish = func(ctx context.Context, envs ...schema.Envelope) error {
		return st.InTx(ctx, func(tx pgx.Tx) error {
			if _, err := outbox.Publish(ctx, tx, envs...); err != nil {
				return err
			}
			return w.book.EnterPostgres(ctx, tx, envs...)
		})
	}
	w.effect = func(ctx context.Context, handler, key, id string) error {
		tx, err := handlers.Tx[pgx.Tx](ctx)
		if err != nil {
			return err
		}
		return w.book.EffectPostgres(ctx, tx, handler, key, id)
	}
	w.enter = func(effects []proof.Effect) error {
		return pgx.BeginFunc(t.Context(), watch, func(tx pgx.Tx) error {
			for _, e := range effects {
				if err := w.book.EffectPostgres(t.Context(), tx, e.Handler, e.Key, e.ID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.used = func() (n int, err error) {
		err = watch.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM millbridge.parked) +
			(SELECT count(*) FROM millbridge.inbox WHERE attempts > 0 OR last_error <> '')`).Scan(&n)
		return n, err
	}
	w.committed = func(stream schema.Stream) ([]string, error) {
		rows, err := watch.Query(t.Context(), `SELECT id FROM proof_committed WHERE stream = $1`, string(stream))
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	w.start(st, true, repairer(t, jetstream.RepairStoreOf(st), w.conn), edits...)
	return w
}

// The server is killed with all its processes, again and again, and comes back.
func TestPostgres_is_killed(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"durable": ""}
	if long {
		servers["asynchronous"] = "synchronous_commit = off"
	}
	for name, settings := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t, pgserver.Options{Settings: settings})
			w := onPostgres(t, pool(t, s.URL(), nil), pool(t, s.URL(), nil), pace())
			stop := w.produce(3, 10*time.Millisecond)
			var back []time.Duration
			for i := range times(2, 12) {
				pause(2 * time.Second)
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					w.says(30*time.Second, "", "cannot be reached")
				} else {
					pause(time.Second)
				}
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
				back = append(back, w.recovers(time.Minute))
			}
			stop()
			w.well(3 * time.Minute)
			w.settled(3 * time.Minute)
			took(t, "killed", back)
		})
	}
}
