package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/schematest"
)

// opener makes harnesses with connections as configure leaves them. A test gives its database back for the next one:
// to make one takes longer than most of the tests.
func opener(t *testing.T, configure func(*pgxpool.Config)) schematest.Opener[pgx.Tx] {
	t.Helper()
	return onPool(t, func() *pgxpool.Pool {
		pool := testkit.EmptyPostgres(t)
		if configure != nil {
			pool = repool(t, pool, configure)
		}
		return pool
	})
}

// onPool is opener on databases that open makes.
func onPool(t *testing.T, open func() *pgxpool.Pool) schematest.Opener[pgx.Tx] {
	t.Helper()
	var mu sync.Mutex
	var spare []*pgxpool.Pool
	return func(sub *testing.T) schematest.Harness[pgx.Tx] {
		sub.Helper()
		mu.Lock()
		var pool *pgxpool.Pool
		if n := len(spare); n > 0 {
			pool, spare = spare[n-1], spare[:n-1]
		}
		mu.Unlock()
		if pool == nil {
			pool = open()
		}
		sub.Cleanup(func() {
			if sub.Failed() {
				return // it may have left a transaction open
			}
			if err := empty(pool); err != nil {
				sub.Errorf("make the database fit for the next test: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			spare = append(spare, pool)
		})
		if err := empty(pool); err != nil {
			sub.Fatal(err)
		}
		return harness(sub, pool)
	}
}

// empty leaves what a new database with a business table has.
func empty(pool *pgxpool.Pool) error {
	for _, sql := range []string{`DROP SCHEMA IF EXISTS millbridge CASCADE`, `DROP TABLE IF EXISTS public.orders`, `CREATE TABLE public.orders (n integer)`} {
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			return err
		}
	}
	return nil
}

// repool opens another pool on the same database.
func repool(t *testing.T, pool *pgxpool.Pool, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	configure(cfg)
	other, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

func harness(t *testing.T, pool *pgxpool.Pool) schematest.Harness[pgx.Tx] {
	t.Helper()
	s := postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
	t.Cleanup(s.Close)
	return schematest.Harness[pgx.Tx]{
		Store:  s,
		Reader: func(ref schema.ShardRef, shards int) schematest.Reader { return s.NewReader(ref, shards) },
		Another: func() schematest.Store[pgx.Tx] {
			return postgres.New(repool(t, pool, func(*pgxpool.Config) {}), postgres.Options{Logger: testkit.Logger(t)})
		},
		Order: func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := tx.Exec(ctx, `INSERT INTO public.orders (n) VALUES ($1::integer)`, n)
			return err
		},
		Orders: func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, `SELECT count(*) FROM public.orders`).Scan(&n)
			return n, err
		},
		Age: func(ctx context.Context, d time.Duration) error { return age(ctx, pool, d) },
		SetVersion: func(ctx context.Context, version int) error {
			_, err := pool.Exec(ctx, `UPDATE millbridge.migrations SET version = $1::integer`, version)
			return err
		},
		Leases:     true,
		Concurrent: true,
	}
}

// age makes all that is stored d older.
func age(ctx context.Context, pool *pgxpool.Pool, d time.Duration) error {
	b := &pgx.Batch{}
	for table, columns := range map[string][]string{
		"outbox": {"created_at"}, "scheduled": {"created_at", "due_at"}, "parked": {"created_at", "parked_at"}, "keys": {"created_at"},
		"shards": {"leased_at", "lease_until", "updated_at"}, "owners": {"acquired_at"}, "inbox": {"lease_until", "next_try", "updated_at", "since"}, "settled": {"settled_at"},
		"leases": {"taken_at", "lease_until"}, "rates": {"next_at", "taken_at"}, "circuits": {"failing_at", "opened_at", "probe_at", "disabled_at"}, "sagas": {"created_at", "updated_at"}, "saga_events": {"at"},
	} {
		var set []string
		for _, c := range columns {
			set = append(set, c+" = "+c+" - $1::bigint * interval '1 microsecond'")
		}
		b.Queue(`UPDATE millbridge.`+table+` SET `+strings.Join(set, ", "), d.Microseconds())
	}
	return pool.SendBatch(ctx, b).Close()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	schematest.Run(t, opener(t, nil))
}

func TestC05_key_scope(t *testing.T) { schematest.C05(t, opener(t, nil)) }
func TestC06_key_bytes(t *testing.T) { schematest.C06(t, opener(t, nil)) }
func TestC21_two_names(t *testing.T) { schematest.C21(t, opener(t, nil)) }
func TestC22_payloads(t *testing.T)  { schematest.C22(t, opener(t, nil)) }
func TestC30_cleanup(t *testing.T)   { schematest.C30(t, opener(t, nil)) }
func TestC36_batches(t *testing.T)   { schematest.C36(t, opener(t, nil)) }

// The sessions' time zones are none of our business.
func TestC33_clocks(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kolkata", "America/New_York"} {
		t.Run(zone, func(t *testing.T) {
			schematest.C33(t, opener(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zone }))
		})
	}
}
