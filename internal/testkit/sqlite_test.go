package testkit_test

import (
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	write, read := testkit.SQLite(t)
	if _, err := write.ExecContext(t.Context(), "CREATE TABLE mine (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	var mode string
	var synchronous int
	if err := write.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil {
		t.Fatal(err)
	}
	if err := write.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&synchronous); err != nil {
		t.Fatal(err)
	}
	if mode != "wal" || synchronous != 2 {
		t.Errorf("journal mode %s, synchronous %d; want wal, 2 (FULL)", mode, synchronous)
	}
	var rows int
	if err := read.QueryRowContext(t.Context(), "SELECT count(*) FROM mine").Scan(&rows); err != nil {
		t.Errorf("the readers do not see the writer's table: %v", err)
	}
	if _, err := read.ExecContext(t.Context(), "INSERT INTO mine VALUES (1)"); err == nil {
		t.Error("a reader may write")
	}
}
