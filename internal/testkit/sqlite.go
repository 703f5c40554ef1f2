package testkit

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver
)

// readers is how many connections the reading side of a SQLite database has.
const readers = 4

// SQLite returns both sides of a new SQLite database in a file of the test's own, not migrated: write has one
// connection whose transactions take the write lock at their start, read has several.
func SQLite(t testing.TB) (write, read *sql.DB) {
	t.Helper()
	return OpenSQLite(t, filepath.Join(t.TempDir(), "millbridge.db"))
}

// OpenSQLite opens both sides of the SQLite database in a file, as a process that starts again does.
func OpenSQLite(t testing.TB, file string) (write, read *sql.DB) {
	t.Helper()
	const common = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	write = openSQLite(t, "file:"+file+common+"&_txlock=immediate", 1)
	// The file exists, in WAL mode, before a reader opens it.
	if err := write.PingContext(t.Context()); err != nil {
		t.Fatalf("open the SQLite database: %v", err)
	}
	return write, openSQLite(t, "file:"+file+common+"&_pragma=query_only(1)", readers)
}

func openSQLite(t testing.TB, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatalf("open the SQLite database: %v", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the SQLite database: %v", err)
		}
	})
	return db
}
