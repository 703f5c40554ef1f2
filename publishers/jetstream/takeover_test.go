package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A hand is an owner whose steps the test takes one by one.
type hand struct {
	*owner
	t      *testing.T
	ledger schema.Shard
}

// anyone gives leases to whoever asks.
type anyone struct{ Store }

func (a anyone) Acquire(ctx context.Context, ref schema.ShardRef, token string, _ time.Duration) (schema.Shard, bool, error) {
	return a.Store.Acquire(ctx, ref, token, 0)
}

// takeHand makes an owner of the shard in which the row of e waits; it has not looked at the stream.
func takeHand(t *testing.T, db Store, b *broker, e schema.Envelope, broken faults) *hand {
	t.Helper()
	cfg := quick(t)
	cfg.faults = broken
	f := newForwarder(t, anyone{db}, b.Conn(t), cfg)
	if err := f.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sh := range f.all() {
		if sh.ref.Stream != e.Stream() || int(e.Slot())*sh.shards>>16 != sh.ref.Shard {
			continue
		}
		w, err := newWriter(f.nc, cfg.AckTimeout, sh.stream)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close)
		o := sh.newOwner(&running{f: f, writer: w}, "hand/"+schema.NewID())
		ledger, ok, err := f.store.Acquire(t.Context(), sh.ref, o.token, 0)
		if err != nil || !ok {
			t.Fatalf("acquire: %v, %v", ok, err)
		}
		return &hand{o, t, ledger}
	}
	t.Fatal("no such shard")
	return nil
}

// take takes the shard over.
func (h *hand) take() *hand {
	h.t.Helper()
	if err := h.takeOver(h.t.Context(), h.ledger); err != nil {
		h.t.Fatalf("take over: %v", err)
	}
	return h
}

// stageRows reads and sends at most n rows, without their cursor.
func (h *hand) stageRows(n int) *staged {
	h.t.Helper()
	rows, err := h.reader.Read(h.t.Context(), schema.ReadParams{Exclude: h.inFlight(), MaxRows: n})
	if err != nil || len(rows) == 0 {
		h.t.Fatalf("read %d rows: %v", len(rows), err)
	}
	out := make(chan *staged, 1)
	if all, err := h.stage(h.t.Context(), rows, out); err != nil || !all {
		h.t.Fatal(all, err)
	}
	return <-out
}

// send sends at most n rows and does not remove them.
func (h *hand) send(n int) *hand {
	h.t.Helper()
	if err := h.commit(h.t.Context(), h.stageRows(n)); err != nil {
		h.t.Fatalf("send: %v", err)
	}
	return h
}

// What a former owner has staged is refused whole, and it steps down without a trace.
func TestTakeover_a_former_owner_is_fenced_off(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 12, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		first := takeHand(t, db, b, envs[0], faults{}).take().send(3)
		held := first.stageRows(4)
		second := takeHand(t, db, b, envs[0], faults{}).take()
		failure := first.commit(t.Context(), held)
		if codeOf(failure) != codeWrongSequence {
			t.Fatalf("the former owner's commit: %v, want code %d", failure, codeWrongSequence)
		}
		if err := first.findOut(t.Context(), failure); schema.KindOf(err) != schema.NotMine {
			t.Errorf("it goes on after that: %v", err)
		}
		if got := first.f.tally(); got.Claimed != 7 || got.Sent != 3 || got.Lost != 4 {
			t.Errorf("its tally is %+v", got)
		}
		if err := first.removeNamed(t.Context()); !errors.Is(err, schema.ErrLeaseLost) {
			t.Errorf("its removal: %v, want %v", err, schema.ErrLeaseLost)
		}
		wantStored(t, b, "MB_JOBS", envs[:3])
		second.send(20)
		if err := second.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStored(t, b, "MB_JOBS", envs)
	})
}

// A batch of the former owner that lands while the new one is about to take over is seen and removed.
func TestTakeover_races_with_a_batch(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 12, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		first := takeHand(t, db, b, envs[0], faults{}).take().send(3)
		held := first.stageRows(4)
		second := takeHand(t, &failing{Store: db, known: func() {
			if held != nil { // after the second owner has read the cursor
				if err := first.commit(t.Context(), held); err != nil {
					t.Error(err)
				}
				held = nil
			}
		}}, b, envs[0], faults{}).take()
		if held != nil {
			t.Fatal("there was no race")
		}
		second.send(20)
		if err := second.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStored(t, b, "MB_JOBS", envs)
		if rows, err := db.waiting(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 0 {
			t.Errorf("%d rows are left (%v)", len(rows), err)
		}
	})
}

// An answer that is lost is asked of the cursor.
func TestTakeover_a_lost_answer(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 12, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		h := takeHand(t, db, b, envs[0], faults{}).take()
		s := h.stageRows(4)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		failure := h.commit(ctx, s) // the commit is on its way, its answer is not waited for
		if !errors.Is(failure, errUnknown) {
			t.Fatalf("got %v, want that it is unknown", failure)
		}
		eventually(t, func() error {
			if n := len(stored(t, b.js, "MB_JOBS")); n != 4 {
				return fmt.Errorf("%d are stored", n)
			}
			return nil
		})
		if err := h.findOut(t.Context(), failure); err != nil {
			t.Errorf("recover: %v, want it to go on", err)
		}
		if got := h.f.tally(); got != (Tally{Claimed: 4, Sent: 4}) {
			t.Errorf("tally is %+v", got)
		}
		h.send(20)
		if err := h.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStored(t, b, "MB_JOBS", envs)
	})
}

// A removal whose answer is lost is asked again as it was, and is not counted as rows that vanished.
func TestTakeover_a_removal_without_answer(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 12, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		lost := &failing{Store: db, after: errors.New("no answer")}
		h := takeHand(t, lost, b, envs[0], faults{}).take().send(3)
		if err := h.removeNamed(t.Context()); err == nil {
			t.Fatal("the answer was not lost")
		}
		lost.after = nil
		if err := h.send(3).removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range h.f.Status() {
			if s.Vanished != 0 {
				t.Errorf("%d rows are said to have vanished", s.Vanished)
			}
		}
		h.send(20)
		wantStored(t, b, "MB_JOBS", envs)
	})
}

// failing is a store that fails where a test wants it.
type failing struct {
	Store
	remove error  // in place of a removal
	after  error  // in place of a removal's answer
	known  func() // when an owner is looked up
}

func (f *failing) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	if f.remove != nil {
		return schema.RemoveResult{}, f.remove
	}
	res, err := f.Store.Remove(ctx, p)
	if err == nil {
		err = f.after
	}
	return res, err
}

func (f *failing) KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error) {
	if f.known != nil {
		f.known()
	}
	return f.Store.KnownOwner(ctx, ref, token)
}
