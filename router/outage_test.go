package router_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// throwOut ends the session that the handler's transaction is in.
func throwOut(ctx context.Context) error {
	tx, err := handlers.Tx[pgx.Tx](ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
	return fmt.Errorf("in words of its own: %v", err) // not wrapped
}

// The database takes back what a handler did in its transaction: the run is made again and costs no attempt.
func TestOutage_in_a_transaction_costs_no_attempt(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	bridge := b.open()
	var seen calls
	policy := quick(1)
	policy.Mode = handlers.ModeTx
	b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
		if seen.add(env) == 1 {
			return throwOut(ctx)
		}
		return nil
	})
	b.run(bridge)
	b.publish(bridge, schema.NewJob("billing", "x", nil))
	b.eventually(seen.reaches(2))
	b.awaitNoJobs()
	b.healthy(bridge)
	if n := len(b.letters()); n != 0 || seen.count() != 2 {
		t.Errorf("%d letters, %d calls", n, seen.count())
	}
	if n := b.count(`SELECT count(*) FROM millbridge.inbox WHERE attempts > 0 OR last_error <> ''`); n != 0 {
		t.Error("an attempt was used up")
	}
}

// A handler that brings the database down each time is given up in the end.
func TestOutage_that_the_handler_makes_comes_to_an_end(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	bridge := b.open()
	var seen calls
	policy := quick(2)
	policy.Mode, policy.MaxCrashes = handlers.ModeTx, 3
	b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
		seen.add(env)
		return throwOut(ctx)
	})
	b.run(bridge)
	b.publish(bridge, schema.NewJob("billing", "x", nil))
	b.eventually(func() error {
		if n := len(b.letters()); n != 1 {
			return fmt.Errorf("%d letters", n)
		}
		return nil
	})
	letters := b.letters()
	if letters[0].Cause != schema.CauseExhausted || letters[0].Attempts != 2 || seen.count() != 6 {
		t.Errorf("letters %+v, %d calls", letters, seen.count())
	}
}

// A statement of the handler gets no answer until the handler's time is over. If the database is silent for everybody, the run
// is made again and costs no attempt; if it answers others, the statement was the handler's.
func TestOutage_until_the_time_of_a_handler_is_over(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{true, false} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			t.Parallel()
			b := onPostgres(t)
			u, err := url.Parse(b.dsn)
			if err != nil {
				t.Fatal(err)
			}
			proxy := netproxy.Start(t, u.Host)
			u.Host = proxy.Addr()
			pool, err := pgxpool.New(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b.store = postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
			bridge := b.open()
			var seen calls
			policy := quick(1)
			policy.Mode, policy.Timeout = handlers.ModeTx, time.Second
			b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
				if seen.add(env) > 1 {
					return nil
				}
				tx, err := handlers.Tx[pgx.Tx](ctx)
				if err != nil {
					return err
				}
				if silent {
					proxy.Freeze(netproxy.Both)
				}
				_, err = tx.Exec(ctx, `SELECT pg_sleep(60)`)
				return fmt.Errorf("in words of its own: %v", err) // not wrapped
			})
			b.publish(bridge, schema.NewJob("billing", "x", nil))
			b.run(bridge)
			b.eventually(seen.reaches(1))
			if silent {
				b.eventually(func() error {
					said := bridge.Health(t.Context()).Problems
					for _, problem := range said {
						if strings.Contains(problem, "no result within 1s") && !strings.Contains(problem, "record a failure") {
							return nil
						}
					}
					return fmt.Errorf("the run was not cut: %q", said)
				})
				proxy.Swallow(netproxy.Both) // what is on its way is lost
				proxy.Heal()
				b.eventually(seen.reaches(2))
			}
			b.awaitNoJobs()
			letters, calls := 0, 2
			if !silent {
				letters, calls = 1, 1
			}
			if n := len(b.letters()); n != letters || seen.count() != calls {
				t.Errorf("%d letters, %d calls; want %d, %d", n, seen.count(), letters, calls)
			}
			if n := b.count(`SELECT count(*) FROM millbridge.inbox WHERE attempts > 0 OR last_error <> ''`); n != letters {
				t.Errorf("%d records have attempts, want %d", n, letters)
			}
		})
	}
}

// awayStore answers nothing about runs that it let start.
type awayStore struct{ brokenStore }

func (s *awayStore) Done(ctx context.Context, run schema.Run) error {
	if s.err() != nil {
		return schema.ErrUnreachable
	}
	return s.testStore.Done(ctx, run)
}

func (s *awayStore) Extend(ctx context.Context, runs []schema.Run, lease time.Duration) ([]string, error) {
	if s.err() != nil {
		return nil, schema.ErrUnreachable
	}
	return s.testStore.Extend(ctx, runs, lease)
}

// The database is away for longer than the lease when a handler has finished: as nobody has taken over, it counts.
func TestOutage_longer_than_the_lease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		store := &awayStore{brokenStore{testStore: b.store}}
		b.store = store
		const lease = 500 * time.Millisecond
		bridge := b.open(func(c *router.Config) { c.Lease = lease })
		var seen calls
		b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error {
			seen.add(env)
			store.set(true)
			return nil
		})
		b.run(bridge)
		b.publish(bridge, schema.NewJob("billing", "x", nil))
		b.eventually(seen.reaches(1))
		began := time.Now()
		testkit.Eventually(t, patience, func() error {
			if d := time.Since(began); d < 4*lease {
				return fmt.Errorf("%v is not long", d)
			}
			return nil
		})
		store.set(false)
		b.awaitNoJobs()
		b.healthy(bridge)
		if seen.count() != 1 {
			t.Errorf("%d calls", seen.count())
		}
	})
}
