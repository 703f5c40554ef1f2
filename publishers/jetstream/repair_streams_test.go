package jetstream

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func TestRepair_stream_recreated(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for name, recreate := range map[string]func(t *testing.T, b *broker){
			"missing": func(*testing.T, *broker) {},
			"empty": func(t *testing.T, b *broker) {
				if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
					t.Fatal(err)
				}
			},
			"with new messages": func(t *testing.T, b *broker) { fill(t, b, 4) },
			// It has come as far as the one before. That proves nothing.
			"filled by others": func(t *testing.T, b *broker) { fill(t, b, 60) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				key := schema.WithOrderingKey("one")
				db.mustPublish(t, jobs(0, 10, key)...)
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				more := jobs(10, 10, key)
				db.mustPublish(t, more...)
				former := takeHand(t, db, b, more[0], faults{}).take().send(1)
				held := former.m.seq
				if err := former.removeNamed(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
					t.Fatal(err)
				}
				recreate(t, b)
				r := newRepairer(t, db, b)
				wantPlan(t, plan(t, r, RepairOptions{Ambiguous: Resend}), false, "--stream-recreated")
				p := plan(t, r, RepairOptions{Ambiguous: Resend, StreamRecreated: true})
				wantPlan(t, p, true, "of the 11 messages it had sent", "9 waiting rows may have been sent")
				switch name {
				case "with new messages":
					wantPlan(t, p, true, "holds 4 messages, which are deleted")
				case "filled by others":
					wantPlan(t, p, true, "holds 60 messages, which are deleted")
				}
				apply(t, r, p)
				s, err := b.js.Stream(t.Context(), "MB_JOBS")
				if err != nil {
					t.Fatal(err)
				}
				if first := s.CachedInfo().State.FirstSeq; first <= held {
					t.Errorf("sequences begin at %d, the former owner expects %d", first, held)
				}
				// However long the new stream lives, the former owner's fence never fits.
				if err := former.commit(t.Context(), former.stageRows(3)); codeOf(err) != codeWrongSequence {
					t.Errorf("the former owner's batch: %v, want code %d", err, codeWrongSequence)
				}
				drain(t, newForwarder(t, anyone{db}, b.nc, quick(t)))
				wantStored(t, b, "MB_JOBS", more[1:])
				if err := CheckGuard(t.Context(), b.js, schema.Subjects{}); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// fill makes the stream of jobs anew and has somebody else write to it.
func fill(t *testing.T, b *broker, n int) {
	t.Helper()
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := b.js.Publish(t.Context(), "mb.jobs.shop.foreign", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Clocks differ: what may have been created since the last removal counts as created since.
func TestRepair_takes_a_stream_in_doubt_for_a_new_one(t *testing.T) {
	t.Parallel()
	removed := time.Now()
	lost := []*patient{{ledger: schema.Shard{UpdatedAt: removed}}, {ledger: schema.Shard{UpdatedAt: removed.Add(time.Hour)}}}
	r := &Repairer{margin: time.Minute}
	for after, want := range map[time.Duration]bool{time.Hour: true, time.Second: true, -59 * time.Second: true, -2 * time.Minute: false, -time.Hour: false} {
		if got := r.recreated(removed.Add(after), lost); got != want {
			t.Errorf("created %v after the last removal: recreated is %v, want %v", after, got, want)
		}
	}
}

// A stream that others have begun to use again is not emptied.
func TestRepair_recreated_stream_with_another_outbox(t *testing.T) {
	t.Parallel()
	db, other, b := openSQLite(t), openSQLite(t), openBroker(t)
	db.mustPublish(t, jobs(0, 10)...)
	drain(t, newForwarder(t, db, b.nc, quick(t)))
	if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	other.mustPublish(t, jobs(0, 1)...)
	drain(t, newForwarder(t, other, b.nc, quick(t)))
	info, err := other.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantPlan(t, plan(t, newRepairer(t, db, b), RepairOptions{StreamRecreated: true, Ambiguous: Resend}), false, "other outboxes already use it", info.ID)
}

// Purging a stream without a subject takes its cursors along.
func TestRepair_purged_stream(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		key := schema.WithOrderingKey("one")
		db.mustPublish(t, jobs(0, 10, key)...)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A running forwarder notices, and goes on when the repair is done.
		f := newForwarder(t, db, b.Conn(t), quick(t))
		start(t, f)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.Stop == StopStreamLost {
					return nil
				}
			}
			return fmt.Errorf("status is %+v", f.Status())
		})
		more := jobs(10, 5, key)
		db.mustPublish(t, more...)
		r := newRepairer(t, db, b)
		p := plan(t, r, RepairOptions{StreamRecreated: true, Ambiguous: Resend})
		wantPlan(t, p, true)
		begin := time.Now()
		apply(t, r, p)
		wantSent(t, f, 5)
		if d := time.Since(begin); d > recheckEvery {
			t.Errorf("it went on after %v, want at once", d)
		}
		wantStored(t, b, "MB_JOBS", more)
	})
}

// A shard that moves between two looks is not taken for one that stands still.
func TestRepair_sees_no_stop_where_there_is_none(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		cfg := quick(t)
		cfg.BatchRows = 10
		f := newForwarder(t, db, b.Conn(t), cfg)
		start(t, f)
		r := newRepairer(t, db, b)
		looks := 0
		for i := range 15 {
			db.mustPublish(t, jobs(i, 30, schema.WithOrderingKey("one"))...)
			for range 3 {
				stops, err := r.Stops(t.Context())
				if err != nil || len(stops) > 0 {
					t.Fatalf("after %d looks: %v, %v", looks, stops, err)
				}
				looks++
			}
		}
		wantSent(t, f, 450)
	})
}

func TestRepair_forgets_an_outbox(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, gone, b := open(t), open(t), openBroker(t)
		for _, d := range []*database{db, gone} {
			d.mustPublish(t, append(jobs(0, 3), schema.NewEvent("x", 1))...)
			drain(t, newForwarder(t, d, b.nc, quick(t)))
		}
		ours, err1 := db.Info(t.Context())
		theirs, err2 := gone.Info(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		r := newRepairer(t, db, b)
		if _, err := r.Plan(t.Context(), RepairOptions{Forget: ours.ID}); err == nil {
			t.Error("it would forget its own outbox")
		}
		if _, err := r.Plan(t.Context(), RepairOptions{Forget: ">"}); err == nil {
			t.Error("it would forget all outboxes")
		}
		if p := plan(t, r, RepairOptions{Forget: "unknown"}); len(p.Lines) != 0 {
			t.Errorf("of an unknown outbox it says %v", p.Lines)
		}
		p := plan(t, r, RepairOptions{Forget: theirs.ID})
		wantPlan(t, p, true, "mb.cursor.jobs."+theirs.ID, "mb.cursor.events."+theirs.ID)
		if err := r.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		db.mustPublish(t, jobs(3, 3)...)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		if got := stored(t, b.js, "MB_JOBS"); len(got) != 9 {
			t.Errorf("%d jobs are stored, want 9", len(got))
		}
		gone.mustPublish(t, jobs(3, 3)...)
		wantStop(t, gone, b, StopStreamLost) // it comes back after all
	})
}
