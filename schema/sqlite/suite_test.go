package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/schematest"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// clock is a database clock that tests move.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func open(t *testing.T) schematest.Harness[*sql.Tx] {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millbridge.db")
	write, read := testkit.OpenSQLite(t, file)
	c := &clock{}
	s := sqlite.New(write, read, sqlite.Options{Now: c.now})
	t.Cleanup(s.Close)
	if _, err := write.ExecContext(t.Context(), "CREATE TABLE orders (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return schematest.Harness[*sql.Tx]{
		Store:  s,
		Reader: func(ref schema.ShardRef, shards int) schematest.Reader { return s.NewReader(ref, shards) },
		Another: func() schematest.Store[*sql.Tx] {
			write, read := testkit.OpenSQLite(t, file)
			other := sqlite.New(write, read, sqlite.Options{Now: c.now})
			t.Cleanup(other.Close)
			return other
		},
		Order: func(ctx context.Context, tx *sql.Tx, n int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", n)
			return err
		},
		Orders: func(ctx context.Context) (n int, err error) {
			err = read.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n)
			return n, err
		},
		Age: func(_ context.Context, d time.Duration) error {
			c.advance(d)
			return nil
		},
		SetVersion: func(ctx context.Context, version int) error {
			_, err := write.ExecContext(ctx, "INSERT INTO millbridge_migrations VALUES (?, 0)", version)
			return err
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	schematest.Run(t, open)
}

func TestC05_key_scope(t *testing.T) { schematest.C05(t, open) }
func TestC06_key_bytes(t *testing.T) { schematest.C06(t, open) }
func TestC21_two_names(t *testing.T) { schematest.C21(t, open) }
func TestC22_payloads(t *testing.T)  { schematest.C22(t, open) }
func TestC30_cleanup(t *testing.T)   { schematest.C30(t, open) }
func TestC33_clocks(t *testing.T)    { schematest.C33(t, open) }
func TestC36_batches(t *testing.T)   { schematest.C36(t, open) }
