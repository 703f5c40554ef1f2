package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver
)

const (
	readers     = 4
	busyTimeout = 10 * time.Second // how long a write waits for another process's
)

// A DB is both sides of one SQLite database.
type DB struct {
	Write *sql.DB // one connection; its transactions take the write lock when they begin
	Read  *sql.DB // several connections that cannot write
}

// setting is a PRAGMA of every connection and what reading it back must give.
type setting struct{ name, value, want string }

func settings() []setting {
	return []setting{
		{"busy_timeout", fmt.Sprint(busyTimeout.Milliseconds()), fmt.Sprint(busyTimeout.Milliseconds())},
		{"journal_mode", "WAL", "wal"},
		{"synchronous", "FULL", "2"},
		{"fullfsync", "1", "1"}, // macOS: otherwise a sync does not reach the disk
		{"foreign_keys", "1", "1"},
	}
}

// OpenSQLite opens the database in file, which it creates for its owner only. It reads every setting back and refuses
// to go on with one that did not take, as journal_mode=WAL does not on some network file systems.
func OpenSQLite(ctx context.Context, file string) (*DB, error) {
	if err := create(file); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	db := &DB{}
	var err error
	if db.Write, err = open(ctx, file, 1, settings(), "&_txlock=immediate"); err != nil {
		return nil, fmt.Errorf("open database %s: %w", file, err)
	}
	if db.Read, err = open(ctx, file, readers, append(settings(), setting{"query_only", "1", "1"}), ""); err != nil {
		return nil, fmt.Errorf("open database %s: %w", file, errors.Join(err, db.Write.Close()))
	}
	return db, nil
}

// Close closes both sides. The last connection of all processes moves the write-ahead log into the database.
func (db *DB) Close() error { return errors.Join(db.Read.Close(), db.Write.Close()) }

// create makes an empty file that only its owner can use; SQLite gives its other files the same mode. An existing
// file is not opened: closing it would drop the locks that SQLite holds on it in this process.
func create(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens a pool and proves the settings on one connection.
func open(ctx context.Context, file string, conns int, set []setting, more string) (*sql.DB, error) {
	dsn, err := dataSource(file, set)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn+more)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := retryBusy(ctx, func() error { return check(ctx, db, set) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// dataSource returns the URI of a file, whatever characters its name has.
func dataSource(file string, set []setting) (string, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	path := filepath.ToSlash(abs)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	query := url.Values{}
	for _, s := range set {
		query.Add("_pragma", s.name+"("+s.value+")")
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String(), nil
}

func check(ctx context.Context, db *sql.DB, set []setting) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range set {
		var got string
		if err := conn.QueryRowContext(ctx, "PRAGMA "+s.name).Scan(&got); err != nil {
			return fmt.Errorf("read %s: %w", s.name, err)
		}
		if got != s.want {
			return fmt.Errorf("%s is %s after it was set to %s; is the file on a network drive?", s.name, got, s.value)
		}
	}
	return nil
}

// retryBusy tries f again while the database is busy. The first change to write-ahead logging does not wait for
// busy_timeout when several processes make it at once.
func retryBusy(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(busyTimeout)
	for {
		err := f()
		var coded interface{ Code() int }
		if err == nil || !errors.As(err, &coded) || coded.Code()&0xff != 5 || time.Now().After(deadline) {
			return err
		}
		if !pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
