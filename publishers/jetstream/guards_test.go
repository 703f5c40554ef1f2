package jetstream

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// A stream that was restored under a running owner has an older cursor of the same owner: it must not go on from there.
func TestTakeover_a_cursor_that_went_back(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 3, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		h := takeHand(t, db, b, envs[0], faults{}).take().send(1)
		stream, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		old, err := stream.GetLastMsgForSubject(t.Context(), h.subject)
		if err != nil {
			t.Fatal(err)
		}
		h.send(1)
		if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.js.Publish(t.Context(), h.subject, old.Data); err != nil {
			t.Fatal(err)
		}
		h.doubt = true
		if sent, err := h.resync(t.Context()); !errors.Is(err, errCursorGone) {
			t.Errorf("an older cursor is taken for the newest: %d rows are said to be stored, %v", sent, err)
		}
	})
}

// An answer that did not come says nothing about the row, also when the cursor has not got it.
func TestPark_never_because_an_answer_is_missing(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		env := jobs(0, 1)[0]
		db.mustPublish(t, env)
		h := takeHand(t, db, b, env, faults{}).take()
		s := h.stageRows(1)
		s.batch.abandon()
		refusal := &commitError{rows: s.rows, err: errUnknown}
		if err := h.findOut(t.Context(), refusal); !errors.Is(err, errUnknown) {
			t.Errorf("got %v, want that it is tried again", err)
		}
		wantParked(t, db, nil)
		if rows, err := db.waiting(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 1 {
			t.Errorf("%d rows wait (%v), want 1", len(rows), err)
		}
	})
}

// A stream that has room for a cursor and none for the row is full: that is not the row's fault.
func TestPark_never_for_want_of_room(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		env := schema.NewJob("crm", "sync", bytes.Repeat([]byte("x"), 64<<10))
		db.mustPublish(t, env)
		h := takeHand(t, db, b, env, faults{}).take()
		stream, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes = 16 << 10
		if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		err = h.commit(t.Context(), h.stageRows(1))
		var refusal *commitError
		if !errors.As(err, &refusal) || codeOf(err) != codeFull {
			t.Fatalf("a row of 64 KiB in a stream of 16 KiB: %v, want that it is full", err)
		}
		if err := h.refused(t.Context(), refusal); err == nil {
			t.Error("the row was dealt with although the stream is full")
		}
		wantParked(t, db, nil)
	})
}
