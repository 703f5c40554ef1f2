package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func TestCheck_refuses_what_loses_messages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wrong func(t *testing.T, write, read *sql.DB, file string) (*sql.DB, *sql.DB)
		want  string
	}{
		"nothing": {func(_ *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) { return write, read }, ""},
		"not flushed": {func(t *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) {
			must(t, write, "PRAGMA synchronous = NORMAL")
			return write, read
		}, "synchronous=1, it must be FULL"},
		"another journal": {func(t *testing.T, write, read *sql.DB, file string) (*sql.DB, *sql.DB) {
			for _, db := range []*sql.DB{write, read} {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(DELETE)&_pragma=synchronous(FULL)")
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			t.Cleanup(func() { db.Close() })
			return db, db
		}, "journal_mode=delete, it must be wal"},
		"in memory": {func(t *testing.T, _, _ *sql.DB, _ string) (*sql.DB, *sql.DB) {
			db, err := sql.Open("sqlite", ":memory:")
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			t.Cleanup(func() { db.Close() })
			if _, _, err := sqlite.New(db, db, sqlite.Options{}).MigrateUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			return db, db
		}, "journal_mode=memory, it must be wal"},
		"several writers": {func(_ *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) {
			write.SetMaxOpenConns(2)
			return write, read
		}, "may open 2 connections"},
		"trigger": {func(t *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) {
			must(t, write, "CREATE TRIGGER drops BEFORE INSERT ON millbridge_outbox BEGIN SELECT RAISE(IGNORE); END")
			return write, read
		}, "millbridge_outbox has a trigger (drops)"},
		"temporary trigger": {func(t *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) {
			must(t, write, "CREATE TEMP TRIGGER drops BEFORE DELETE ON millbridge_inbox BEGIN SELECT RAISE(IGNORE); END")
			return write, read
		}, "millbridge_inbox has a trigger (drops)"},
		"trigger of the application": {func(t *testing.T, write, read *sql.DB, _ string) (*sql.DB, *sql.DB) {
			must(t, write, "CREATE TABLE orders (n)")
			must(t, write, "CREATE TRIGGER theirs AFTER INSERT ON orders BEGIN SELECT 1; END")
			return write, read
		}, ""},
		"two files": {func(t *testing.T, write, _ *sql.DB, _ string) (*sql.DB, *sql.DB) {
			other, read := testkit.OpenSQLite(t, filepath.Join(t.TempDir(), "other.db"))
			if _, _, err := sqlite.New(other, read, sqlite.Options{}).MigrateUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			return write, read
		}, "open the same file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "mb.db")
			write, read := testkit.OpenSQLite(t, file)
			if _, _, err := sqlite.New(write, read, sqlite.Options{}).MigrateUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			write, read = c.wrong(t, write, read, file)
			s := sqlite.New(write, read, sqlite.Options{})
			err := s.Check(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || schema.KindOf(err) != schema.Permanent) {
				t.Errorf("error %v, want a permanent one with %q", err, c.want)
			}
			if notes, err := s.WeakSettings(t.Context()); err != nil || len(notes) != 0 {
				t.Errorf("weak: %q, %v", notes, err)
			}
		})
	}
}

func TestCheckRights_of_a_file_that_cannot_be_written(t *testing.T) {
	t.Parallel()
	write, read := testkit.SQLite(t)
	s := sqlite.New(write, read, sqlite.Options{})
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckRights(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, write, "PRAGMA query_only = 1")
	if err := s.CheckRights(t.Context()); err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("error %v, want one that says so", err)
	}
}

func must(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func TestDurability(t *testing.T) {
	t.Parallel()
	write, read := testkit.SQLite(t)
	memory, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	for want, s := range map[schema.Durability]*sqlite.Store{
		schema.OnSQLite: sqlite.New(write, read, sqlite.Options{}), schema.InMemory: sqlite.New(memory, memory, sqlite.Options{}),
	} {
		if level, weak, err := s.Durability(t.Context()); err != nil || level != want || weak == "" {
			t.Errorf("%v because of %q, %v; want %v", level, weak, err, want)
		}
	}
}
