package testkit

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// Postgres returns a pool on a new database of the test's own that has been migrated.
func Postgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	template, err := migratedTemplate()
	if err != nil {
		t.Fatalf("make the template of the tests' databases: %v", err)
	}
	pool := newDatabase(t, template)
	if err := makeOwn(t.Context(), pool); err != nil {
		t.Fatalf("prepare the test's database: %v", err)
	}
	return pool
}

// PostgresStore returns a store on a new, migrated database.
func PostgresStore(t testing.TB) *postgres.Store {
	t.Helper()
	store := postgres.New(Postgres(t), postgres.Options{Logger: Logger(t)})
	t.Cleanup(store.Close)
	return store
}

// SQLiteStore returns a store on a new, migrated database.
func SQLiteStore(t testing.TB) *sqlite.Store {
	t.Helper()
	write, read := SQLite(t)
	store := sqlite.New(write, read, sqlite.Options{Logger: Logger(t)})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatalf("migrate the test's database: %v", err)
	}
	return store
}

// makeOwn turns a copy of the template into an outbox of its own, as if it had been migrated itself: a copy is
// otherwise known for a copy, and refused.
func makeOwn(ctx context.Context, pool *pgxpool.Pool) error {
	const own = `UPDATE millbridge.meta SET
		outbox_id = substr(md5(gen_random_uuid()::text), 1, length(outbox_id)),
		database_oid = (SELECT oid::bigint FROM pg_database WHERE datname = current_database())`
	tag, err := pool.Exec(ctx, own)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows of meta, want 1", tag.RowsAffected())
	}
	return err
}

// migratedTemplate makes the database that this process copies for each test. On a given server it stays behind until
// a later run finds it stale.
var migratedTemplate = sync.OnceValues(func() (string, error) {
	server, err := postgresBackend()
	if err != nil {
		return "", err
	}
	name := databaseName()
	if err := server.create(name, ""); err != nil {
		return "", err
	}
	if err := migrate(server.admin, name); err != nil {
		return "", err
	}
	// Nothing may connect to a template while it is copied.
	return name, server.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
})

func migrate(admin, database string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	pool, err := openPool(admin, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, _, err = postgres.New(pool, postgres.Options{}).MigrateUp(ctx)
	return err
}
