package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/schematest"
)

// behindPgBouncer opens another pool on the same database, through a PgBouncer with two connections to it.
func behindPgBouncer(t *testing.T, pool *pgxpool.Pool, mode, exec string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testkit.PgBouncer(t, pool, mode, 2, exec))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 12
	through, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	return through
}

// strangeSessions makes the sessions of a database unlike others in everything that must not matter.
func strangeSessions(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, set := range []string{
		"default_transaction_isolation = serializable", "search_path = nowhere", "synchronous_commit = off", "timezone = 'Asia/Kolkata'",
		"intervalstyle = iso_8601", "extra_float_digits = 0", "standard_conforming_strings = on", "enable_indexscan = off",
	} {
		if _, err := pool.Exec(t.Context(), `ALTER DATABASE `+pool.Config().ConnConfig.Database+` SET `+set); err != nil {
			t.Fatal(err)
		}
	}
}

func TestC27_behind_a_transaction_pooler(t *testing.T) {
	t.Parallel()
	for _, exec := range poolerModes {
		t.Run(exec, func(t *testing.T) {
			t.Parallel()
			schematest.Run(t, onPool(t, func() *pgxpool.Pool {
				pool := testkit.EmptyPostgres(t)
				strangeSessions(t, pool)
				return behindPgBouncer(t, pool, "transaction", exec)
			}))
		})
	}
}

// The default of the driver does not work there, which is why the setting is documented, and the error names it.
func TestC27_prepared_statements_break_behind_a_pooler(t *testing.T) {
	t.Parallel()
	s := postgres.New(behindPgBouncer(t, testkit.Postgres(t), "transaction", "cache_statement"), postgres.Options{})
	codes := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, err := s.Tend(t.Context(), 1)
				var answer *pgconn.PgError
				if errors.As(err, &answer) {
					mu.Lock()
					codes[answer.Code]++
					mu.Unlock()
					if !strings.Contains(err.Error(), "default_query_exec_mode") {
						t.Errorf("%v does not name the setting", err)
					}
				}
			}
		})
	}
	wg.Wait()
	if codes["42P05"]+codes["26000"] == 0 {
		t.Errorf("codes %v: this pooler does not do what poolers do", fmt.Sprint(codes))
	}
}

// A pooler that hands out a connection for a statement breaks transactions apart. Everything refuses it, for good and
// in plain words.
func TestC27_statement_pooling_is_refused(t *testing.T) {
	t.Parallel()
	pool := behindPgBouncer(t, testkit.Postgres(t), "statement", "cache_describe")
	s := postgres.New(pool, postgres.Options{})
	for what, do := range map[string]func(ctx context.Context) error{
		"check":   s.Check,
		"migrate": func(ctx context.Context) error { _, _, err := s.MigrateUp(ctx); return err },
		"tend":    func(ctx context.Context) error { _, err := s.Tend(ctx, 1); return err },
		"publish": func(ctx context.Context) error {
			return s.Unit(ctx, func(u schema.Unit) error {
				_, err := u.Append(ctx, []schema.Envelope{schema.NewJob("a", "do", nil)})
				return err
			})
		},
	} {
		err := do(t.Context())
		if err == nil || schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "pool_mode = transaction") || errors.Is(err, schema.ErrUnavailable) {
			t.Errorf("%s: %v (%v), want a permanent error that names the setting, and no outage", what, err, schema.KindOf(err))
		}
	}
}
