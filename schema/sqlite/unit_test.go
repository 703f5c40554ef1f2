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

func unitRun(owner string) schema.Run {
	return schema.Run{Key: schema.InboxKey{Handler: "h", Key: "k"}, Owner: owner, MessageID: "m", BodyHash: [32]byte{1}, Lease: time.Minute}
}

func claimIn(t *testing.T, u schema.Unit, owner string, want schema.Claim) {
	t.Helper()
	res, err := u.Claim(t.Context(), unitRun(owner))
	if err != nil || res.Claim != want {
		t.Fatalf("claim %v, %v; want %v", res.Claim, err, want)
	}
}

func stateOf(t *testing.T, s *sqlite.Store) schema.InboxState {
	t.Helper()
	rec, _, err := s.LookupInbox(t.Context(), unitRun("").Key)
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

func TestUnitBeginsWhenNeeded(t *testing.T) {
	t.Parallel()
	s, file := newFile(t)
	app := application(t, file, 50*time.Millisecond)
	write := func() error {
		return inTx(t.Context(), app, func(tx *sql.Tx) error {
			_, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewEvent("seen", nil)})
			return err
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := s.Unit(ctx, func(u schema.Unit) error {
		claimIn(t, u, "one", schema.ClaimRun)
		if err := write(); err != nil { // the handler has begun and waits for something slow
			t.Errorf("the application's write while a handler runs: %v", err)
		}
		// Another delivery of the message does not run beside it.
		err := s.Unit(ctx, func(u schema.Unit) error {
			claimIn(t, u, "two", schema.ClaimBusy)
			return nil
		})
		if err != nil {
			return err
		}
		if _, ok := u.Tx().(*sql.Tx); !ok {
			t.Errorf("the transaction is a %T", u.Tx())
		}
		if err := write(); !errors.Is(err, schema.ErrRetryTransaction) { // from here on it holds the lock
			t.Errorf("the application's write beside the handler's: %v", err)
		}
		if state := stateOf(t, s); state != "" {
			t.Errorf("the inbox says %q before the commit", state)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, s); state != schema.InboxDone {
		t.Errorf("the inbox says %q", state)
	}
}

func TestUnitWithoutWritesIsDone(t *testing.T) {
	t.Parallel()
	s, _ := newFile(t)
	for _, end := range []error{errors.New("handler"), nil} {
		err := s.Unit(t.Context(), func(u schema.Unit) error {
			claimIn(t, u, "one", schema.ClaimRun)
			return end
		})
		want := schema.InboxState("")
		if end == nil {
			want = schema.InboxDone
		}
		if state := stateOf(t, s); !errors.Is(err, end) || state != want {
			t.Errorf("after %v: %v and state %q", end, err, state)
		}
	}
	if err := s.Unit(t.Context(), func(schema.Unit) error { return nil }); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}

func TestUnitWhoseClaimIsGone(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"at the first write", "at the end"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			s, _ := newFile(t)
			err := s.Unit(t.Context(), func(u schema.Unit) error {
				claimIn(t, u, "one", schema.ClaimRun)
				// Another process was quicker.
				err := s.InTx(t.Context(), func(tx *sql.Tx) error {
					_, err := s.ClaimTx(t.Context(), tx, unitRun("two"))
					return err
				})
				if err != nil || late == "at the end" {
					return err
				}
				_, err = u.Append(t.Context(), []schema.Envelope{schema.NewEvent("seen", nil)})
				return err
			})
			if !errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) != schema.NotMine {
				t.Errorf("error %v", err)
			}
			if rows, err := s.ListOutbox(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 0 {
				t.Errorf("%d rows, %v", len(rows), err)
			}
		})
	}
}

func TestUnitThatCannotBegin(t *testing.T) {
	t.Parallel()
	s, _ := newFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Unit(ctx, func(u schema.Unit) error {
		cancel()
		err, failed := u.Tx().(error)
		if !failed {
			t.Errorf("the transaction is a %T", u.Tx())
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Who waits for the only writer until its time is over is told what it waited for.
func TestUnitThatWaitsTooLong(t *testing.T) {
	t.Parallel()
	s, _ := newFile(t)
	err := s.InTx(t.Context(), func(*sql.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := s.Unit(ctx, func(u schema.Unit) error {
			claimIn(t, u, "one", schema.ClaimRun)
			_, err := u.Append(ctx, []schema.Envelope{schema.NewEvent("seen", nil)})
			return err
		})
		if !errors.Is(err, schema.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || schema.KindOf(err) != schema.Temporary {
			t.Errorf("error %v, want that somebody else has the database", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
