package publishers_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// exampleTB lets examples, which have no testing.TB, use the databases of the tests.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (e *exampleTB) Helper()                           {}
func (e *exampleTB) Context() context.Context          { return context.Background() }
func (e *exampleTB) Cleanup(f func())                  { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (e *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		e.Fatalf("%v", err)
	}
	e.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (e *exampleTB) done() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

// examplePostgres returns a migrated database with a table for orders.
func examplePostgres() (pool *pgxpool.Pool, done func()) {
	tb := &exampleTB{}
	pool = testkit.Postgres(tb)
	if _, err := pool.Exec(context.Background(), createOrders); err != nil {
		panic(err)
	}
	return pool, tb.done
}

// exampleSQLite returns the same in SQLite.
func exampleSQLite() (write, read *sql.DB, done func()) {
	tb := &exampleTB{}
	write, read = testkit.SQLite(tb)
	_, _, err := sqlite.New(write, read, sqlite.Options{}).MigrateUp(context.Background())
	if err == nil {
		_, err = write.Exec(createOrders)
	}
	if err != nil {
		panic(err)
	}
	return write, read, tb.done
}
