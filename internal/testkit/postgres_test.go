package testkit_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
)

func TestEmptyPostgres(t *testing.T) {
	t.Parallel()
	first, second := testkit.EmptyPostgres(t), testkit.EmptyPostgres(t)
	if _, err := first.Exec(t.Context(), "CREATE TABLE mine (id int)"); err != nil {
		t.Fatal(err)
	}
	var exists bool
	if err := second.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&exists); err != nil {
		t.Fatal(err)
	}
	if exists {
		t.Error("two databases of one test share a table")
	}

	conn, err := pgx.Connect(t.Context(), testkit.PostgresURL(first))
	if err != nil {
		t.Fatalf("connect by the URL: %v", err)
	}
	defer conn.Close(t.Context())
	var fsync, syncCommit string
	var prepared int
	err = conn.QueryRow(t.Context(),
		"SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('max_prepared_transactions')::int",
	).Scan(&fsync, &syncCommit, &prepared)
	if err != nil {
		t.Fatal(err)
	}
	if fsync != "on" || syncCommit != "on" || prepared == 0 {
		t.Errorf("fsync %s, synchronous_commit %s, max_prepared_transactions %d; want on, on, above 0", fsync, syncCommit, prepared)
	}
}

func TestEmptyPostgres_is_dropped_when_the_test_ends(t *testing.T) {
	t.Parallel()
	keep := testkit.EmptyPostgres(t)
	var name string
	t.Run("test", func(t *testing.T) {
		pool := testkit.EmptyPostgres(t)
		if err := pool.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	var left int
	if err := keep.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if name == "" || left != 0 {
		t.Errorf("database %q is still there", name)
	}
}
