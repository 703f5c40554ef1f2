package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/schematest"
)

// opener makes harnesses on databases of their own, with connections as configure leaves them.
func opener(configure func(*pgxpool.Config)) schematest.Opener[pgx.Tx] {
	return func(t *testing.T) schematest.Harness[pgx.Tx] {
		t.Helper()
		pool := testkit.EmptyPostgres(t)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (n integer)`); err != nil {
			t.Fatal(err)
		}
		if configure != nil {
			pool = repool(t, pool, configure)
		}
		return harness(t, pool)
	}
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
		Order: func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := tx.Exec(ctx, `INSERT INTO orders (n) VALUES ($1::integer)`, n)
			return err
		},
		Orders: func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, `SELECT count(*) FROM orders`).Scan(&n)
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

func age(ctx context.Context, pool *pgxpool.Pool, d time.Duration) error {
	for _, column := range []string{
		"outbox.created_at", "scheduled.created_at", "scheduled.due_at", "parked.created_at", "parked.parked_at", "keys.created_at",
		"shards.lease_until", "shards.updated_at", "owners.acquired_at", "inbox.lease_until", "inbox.next_try", "inbox.updated_at",
	} {
		table, name, _ := strings.Cut(column, ".")
		_, err := pool.Exec(ctx, `UPDATE millbridge.`+table+` SET `+name+` = `+name+` - $1::bigint * interval '1 microsecond'`, d.Microseconds())
		if err != nil {
			return err
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	t.Parallel()
	schematest.Run(t, opener(nil))
}

func TestC05_key_scope(t *testing.T) { schematest.C05(t, opener(nil)) }
func TestC06_key_bytes(t *testing.T) { schematest.C06(t, opener(nil)) }
func TestC21_two_names(t *testing.T) { schematest.C21(t, opener(nil)) }
func TestC22_payloads(t *testing.T)  { schematest.C22(t, opener(nil)) }
func TestC30_cleanup(t *testing.T)   { schematest.C30(t, opener(nil)) }
func TestC36_batches(t *testing.T)   { schematest.C36(t, opener(nil)) }

// The sessions' time zones are none of our business.
func TestC33_clocks(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kolkata", "America/New_York"} {
		t.Run(zone, func(t *testing.T) {
			schematest.C33(t, opener(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zone }))
		})
	}
}
