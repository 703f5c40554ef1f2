package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func TestAppendInTheApplicationsTransaction(t *testing.T) {
	t.Parallel()
	job := schema.NewJob("shop", "say", nil)

	t.Run("a rolled back savepoint takes its rows along", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		app := application(t, file, 50*time.Millisecond)
		err := inTx(t.Context(), app, func(tx *sql.Tx) error {
			if _, err := s.Append(t.Context(), tx, []schema.Envelope{job}); err != nil {
				return err
			}
			if _, err := tx.ExecContext(t.Context(), "SAVEPOINT theirs"); err != nil {
				return err
			}
			if _, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewJob("shop", "say", nil, schema.WithKey("k"))}); err != nil {
				return err
			}
			_, err := tx.ExecContext(t.Context(), "ROLLBACK TO theirs; RELEASE theirs")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.ListOutbox(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) != 1 || rows[0].ID != schema.RowID(job.ID) {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		// The key is free again.
		if r := appendTo(t, s, schema.NewJob("shop", "say", nil, schema.WithKey("k"))); r[0].Existing {
			t.Error("the key of a rolled back message is taken")
		}
	})

	t.Run("a deferred transaction is not refused", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		other := application(t, file, 50*time.Millisecond)
		asked := 0
		now := func() time.Time {
			if asked++; asked == 2 {
				// The payload limit has just been read. If that was a SELECT, this commit goes through and the
				// transaction cannot write any more; if it has taken the write lock, this commit fails.
				err := inTx(t.Context(), other, func(tx *sql.Tx) error {
					_, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewEvent("between", nil)})
					return err
				})
				if !errors.Is(err, schema.ErrRetryTransaction) {
					t.Errorf("a commit between reading and writing: %v", err)
				}
			}
			return time.Now()
		}
		cold := sqlite.New(nil, nil, sqlite.Options{Now: now})
		err := inTx(t.Context(), application(t, file, time.Second), func(tx *sql.Tx) error {
			_, err := cold.Append(t.Context(), tx, []schema.Envelope{job})
			return err
		})
		if err != nil || asked != 2 {
			t.Fatalf("%v after %d looks at the clock", err, asked)
		}
	})
}

func TestBusy(t *testing.T) {
	t.Parallel()
	wantRetry := func(t *testing.T, err error) {
		t.Helper()
		if schema.KindOf(err) != schema.Temporary || !errors.Is(err, schema.ErrRetryTransaction) {
			t.Errorf("error %v of kind %v, want %v", err, schema.KindOf(err), schema.ErrRetryTransaction)
		}
	}
	job := []schema.Envelope{schema.NewJob("shop", "say", nil)}

	t.Run("a snapshot that is too old", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		wantRetry(t, inTx(t.Context(), application(t, file, 50*time.Millisecond), func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM millbridge_outbox").Scan(&n); err != nil {
				return err
			}
			appendTo(t, s, job...)
			_, err := s.Append(t.Context(), tx, job)
			return err
		}))
	})
	t.Run("another writer", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		err := s.InTx(t.Context(), func(*sql.Tx) error {
			return inTx(t.Context(), application(t, file, 50*time.Millisecond), func(tx *sql.Tx) error {
				_, err := s.Append(t.Context(), tx, job)
				return err
			})
		})
		wantRetry(t, err)
	})
	t.Run("another writer and our own transaction", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		err := inTx(t.Context(), application(t, file, 50*time.Millisecond), func(tx *sql.Tx) error {
			if _, err := s.Append(t.Context(), tx, job); err != nil {
				return err
			}
			write, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(50)&_txlock=immediate")
			if err != nil {
				return err
			}
			defer write.Close()
			_, err = sqlite.New(write, write, sqlite.Options{}).Claim(t.Context(), schema.Run{})
			return err
		})
		wantRetry(t, err)
	})
	t.Run("a wait ends with its context", func(t *testing.T) {
		t.Parallel()
		s, file := newFile(t)
		err := inTx(t.Context(), application(t, file, 50*time.Millisecond), func(tx *sql.Tx) error {
			if _, err := s.Append(t.Context(), tx, job); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := s.Claim(ctx, schema.Run{})
			if took := time.Since(start); err == nil || took > 5*time.Second { // busy_timeout is 10 s
				t.Errorf("%v after %v", err, took)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
