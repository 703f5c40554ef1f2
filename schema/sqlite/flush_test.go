package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// application opens a database as a service does that knows nothing of us: commits are not synced, transactions begin
// without the write lock, and wait for it for the time given.
func application(t *testing.T, file string, wait time.Duration) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)", file, wait.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// newFile returns a migrated store and the file it is in.
func newFile(t *testing.T) (*sqlite.Store, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.db")
	write, read := testkit.OpenSQLite(t, file)
	s := sqlite.New(write, read, sqlite.Options{})
	t.Cleanup(s.Close)
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, file
}

func flushes(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT flushes FROM millbridge_meta").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestReadFlushesForeignCommits(t *testing.T) {
	t.Parallel()
	s, file := newFile(t)
	app := application(t, file, time.Second)
	publish := func() {
		t.Helper()
		err := inTx(t.Context(), app, func(tx *sql.Tx) error {
			_, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewJob("shop", "say", nil)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := s.NewReader(jobsShard, 1)
	read := func(wantRows, wantFlushes int) []schema.Row {
		t.Helper()
		rows, err := r.Read(t.Context(), schema.ReadParams{})
		if err != nil || len(rows) != wantRows {
			t.Fatalf("%d rows, %v; want %d", len(rows), err, wantRows)
		}
		if n := flushes(t, app); n != wantFlushes {
			t.Fatalf("%d own commits, want %d", n, wantFlushes)
		}
		return rows
	}
	read(0, 0)
	publish()
	read(1, 1) // not before the commit of another connection is on disk
	read(1, 1) // known by now
	publish()
	rows := read(2, 2)

	// A removal is an own commit too: what was there before it needs no other.
	if _, ok, err := s.Acquire(t.Context(), jobsShard, "me", time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	publish()
	if _, err := s.Remove(t.Context(), schema.RemoveParams{ShardRef: jobsShard, Owner: "me", Batch: 1, Total: 1, Names: []schema.RowName{rows[0].Name()}}); err != nil {
		t.Fatal(err)
	}
	read(2, 2)
	publish()
	read(3, 3)
}
