package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// smallPool opens a pool of so many connections beside pool, which tells them from its own by their name.
func smallPool(t *testing.T, pool *pgxpool.Pool, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testkit.DirectPostgresURL(t, pool)) // a pooler's own connections are not what is counted
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.RuntimeParams["application_name"] = "small"
	small, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	return small
}

// onSmallPools runs test where service and bridge share the smallest pool that is allowed. watch has a pool of its own.
func onSmallPools(t *testing.T, test func(t *testing.T, w *world, watch *pgxpool.Pool)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		watch := testkit.Postgres(t)
		test(t, onPool(t, smallPool(t, watch, 2)), watch)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		w := onSQLite(t)
		w.read.SetMaxOpenConns(1)
		test(t, w, nil)
	})
}

// ask is a query of the service's own. A long one that is cancelled before the server has begun it goes on there, and
// keeps its connection so long.
func (w *world) ask(ctx context.Context, long bool) (err error) {
	var n int
	switch {
	case w.pg != nil && long:
		_, err = w.pg.Exec(ctx, `SELECT pg_sleep(0.3)`)
	case w.pg != nil:
		err = w.pg.QueryRow(ctx, `SELECT count(*) FROM orders`).Scan(&n)
	case long:
		err = w.read.QueryRowContext(ctx, `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000000) SELECT count(*) FROM c`).Scan(&n)
	default:
		err = w.read.QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&n)
	}
	return err
}

// cancelled begins a query that lasts longer than its caller waits.
func (w *world) cancelled(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := w.ask(ctx, true); err == nil {
		return errors.New("a query that was cancelled has succeeded")
	}
	return nil
}

// 200 cancelled queries a second, and the database throws everybody out in between.
func TestC28_cancelled_queries(t *testing.T) {
	onSmallPools(t, func(t *testing.T, w *world, watch *pgxpool.Pool) {
		var handled atomic.Int64
		handler := handlers.HandlerFunc(func(ctx context.Context, _ schema.Envelope) error {
			if err := w.cancelled(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			if err := w.ask(ctx, false); err != nil {
				return err
			}
			handled.Add(1)
			return nil
		})
		retry := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 1000, Base: 20 * time.Millisecond, Factor: 1}}
		inTx := retry
		inTx.Mode = handlers.ModeTx
		run(t, w.open(t, handlers.Target{Name: "lease", Handler: handler, Policy: retry}, handlers.Target{Name: "tx", Handler: handler, Policy: inTx}))

		published := int64(0)
		publish := func() {
			t.Helper()
			testkit.Eventually(t, 2*time.Minute, func() error { // thrown out, it tries again
				return w.inTx(func(u unit) error {
					_, err := u.publish(schema.NewJob("lease", "do", nil), schema.NewJob("tx", "do", nil))
					return err
				})
			})
			published += 2
		}
		wantHandled := func(limit time.Duration, when string) {
			t.Helper()
			began := time.Now()
			testkit.Eventually(t, 2*time.Minute, func() error {
				if n := handled.Load(); n < published {
					return fmt.Errorf("%s: %d handled, want %d", when, n, published)
				}
				return nil
			})
			if d := time.Since(began); d > limit {
				t.Errorf("%s: it took %v, want at most %v", when, d, limit)
			}
		}

		most := w.watchConnections(t, watch)
		storm, calm := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.storm(storm, 5*time.Millisecond) }()
		tenTimes := func() {
			t.Helper()
			for range number(10, 50) { // with as many again: ten seconds
				publish()
				select {
				case <-time.After(100 * time.Millisecond):
				case <-t.Context().Done():
				}
			}
		}
		tenTimes()
		if w.pg != nil {
			const throwOut = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'small'`
			var n int
			if err := watch.QueryRow(t.Context(), throwOut).Scan(&n); err != nil || n == 0 {
				t.Fatalf("%d connections were cut, %v", n, err)
			}
			publish()
			wantHandled(10*time.Second, "after the connections were cut")
		}
		tenTimes()
		calm()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wantHandled(10*time.Second, "after the storm")
		if w.pg != nil {
			if n := most(); n < 1 || n > 2 {
				t.Errorf("the server had up to %d connections of a pool of 2", n)
			}
		}
		if letters := w.dead(t); len(letters) != 0 {
			t.Errorf("dead letters %v", letters)
		}
	})
}

// storm cancels a query at each tick until ctx ends.
func (w *world) storm(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	running := make(chan error, 1000)
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
			go func() { running <- w.cancelled(context.WithoutCancel(ctx), every) }()
			continue
		case <-ctx.Done():
		}
		var errs []error
		for range n {
			errs = append(errs, <-running)
		}
		if n < 100 {
			errs = append(errs, fmt.Errorf("only %d queries were cancelled", n))
		}
		return errors.Join(errs...)
	}
}

// watchConnections counts the small pool's connections at the server until the returned function asks for the most.
func (w *world) watchConnections(t *testing.T, watch *pgxpool.Pool) (most func() int) {
	if w.pg == nil {
		return nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	result := make(chan int, 1)
	go func() {
		highest := 0
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			var n int
			const count = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'small'`
			if err := watch.QueryRow(ctx, count).Scan(&n); err == nil {
				highest = max(highest, n)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
		result <- highest
	}()
	t.Cleanup(stop)
	return func() int {
		stop()
		return <-result
	}
}

// In the smallest pool, handlers that query while their transaction is open cannot wait for each other for ever.
func TestC28_smallest_pool(t *testing.T) {
	onSmallPools(t, func(t *testing.T, w *world, watch *pgxpool.Pool) {
		var handled atomic.Int64
		handler := handlers.HandlerFunc(func(ctx context.Context, _ schema.Envelope) error {
			if err := w.ask(ctx, false); err != nil {
				return err
			}
			handled.Add(1)
			return nil
		})
		policy := handlers.Policy{Mode: handlers.ModeTx, Retry: schema.RetryPolicy{MaxAttempts: 1, Base: 1, Factor: 1}, Timeout: time.Minute}
		run(t, w.open(t, handlers.Target{Name: "a", Handler: handler, Policy: policy}, handlers.Target{Name: "b", Handler: handler, Policy: policy}))
		for range 50 {
			w.publish(t, schema.NewJob("a", "do", nil), schema.NewJob("b", "do", nil))
		}
		testkit.Eventually(t, 2*time.Minute, func() error {
			if n := handled.Load(); n < 100 {
				return fmt.Errorf("%d handled", n)
			}
			return nil
		})
		if w.pg == nil {
			return
		}
		_, err := router.Open(t.Context(), router.Config{Store: postgres.New(smallPool(t, watch, 1), postgres.Options{}), Conn: w.conn})
		if err == nil || !strings.Contains(err.Error(), "pool has 1 connection, want at least 2") || schema.KindOf(err) != schema.Permanent {
			t.Errorf("a pool of one: %v", err)
		}
	})
}
