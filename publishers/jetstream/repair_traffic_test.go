package jetstream

import (
	"errors"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Between a plan and its carrying out applications publish and consumers take. Neither stops the repair, and what came
// in since is sent as if nothing had happened.
func TestRepair_under_traffic(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		t.Run("database behind", func(t *testing.T) {
			t.Parallel()
			db, b := open(t), openBroker(t)
			restore := runAhead(t, db, b, 20)
			takeJobs(t, b, 4)
			restore()
			r := newRepairer(t, db, b)
			r.margin = time.Minute // new rows are as young as the cursor
			p := plan(t, r, RepairOptions{Ambiguous: Park})
			wantPlan(t, p, true, "4 waiting rows may have been sent")
			db.mustPublish(t, jobs(20, 7)...)
			db.mustPublish(t, schema.NewJob("shop", "order.paid", 1, schema.WithDelay(time.Millisecond)))
			takeJobs(t, b, 6) // the plan knows that they were sent
			apply(t, r, p)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			if got := stored(t, b.js, "MB_JOBS"); len(got) != 10+20+8 {
				t.Errorf("%d are stored, want 10 old, 20 lost and 8 new ones", len(got))
			}
			if rows, err := db.parked(t.Context(), schema.RowFilter{Limit: 100}); err != nil || len(rows) != 4 {
				t.Errorf("%d are parked (%v), want 4", len(rows), err)
			}
		})
		t.Run("stream lost", func(t *testing.T) {
			t.Parallel()
			db, b := open(t), openBroker(t)
			db.mustPublish(t, jobs(0, 20)...)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			if err := b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
				t.Fatal(err)
			}
			db.mustPublish(t, jobs(20, 5)...)
			r := newRepairer(t, db, b)
			p := plan(t, r, RepairOptions{Ambiguous: Park, StreamRecreated: true})
			more := jobs(25, 7)
			db.mustPublish(t, more...)
			apply(t, r, p)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			got := storedIDs(t, b, "MB_JOBS")
			for _, e := range more {
				if got[e.ID] != 1 {
					t.Errorf("%s is stored %d times", e.ID, got[e.ID])
				}
			}
			if rows, err := db.parked(t.Context(), schema.RowFilter{Limit: 100}); err != nil || len(rows) != 5 || len(got) != 7 {
				t.Errorf("%d are parked and %d stored (%v), want 5 and 7", len(rows), len(got), err)
			}
		})
		t.Run("copy", func(t *testing.T) {
			t.Parallel()
			db, b := open(t), openBroker(t)
			db.mustPublish(t, jobs(0, 5)...)
			r := newRepairer(t, db, b)
			p := plan(t, r, RepairOptions{Ambiguous: Park, AsClone: true})
			db.mustPublish(t, jobs(5, 7)...)
			db.mustPublish(t, schema.NewJob("shop", "order.paid", 1, schema.WithDelay(time.Millisecond)))
			apply(t, r, p)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			rows, err := db.parked(t.Context(), schema.RowFilter{Limit: 100})
			if got := stored(t, b.js, "MB_JOBS"); err != nil || len(rows) != 5 || len(got) != 8 {
				t.Errorf("%d are parked and %d stored (%v), want 5 and 8", len(rows), len(got), err)
			}
		})
	})
}

// runAhead publishes n jobs, sends them and n more, and returns how to bring the database back to where it was before.
// The second round makes every shard's cursor say that rows of the first are gone.
func runAhead(t *testing.T, db *database, b *broker, n int) (restore func()) {
	t.Helper()
	db.mustPublish(t, jobs(0, n)...)
	restore = db.backup(t)
	f := newForwarder(t, db, b.nc, quick(t))
	drain(t, f)
	db.mustPublish(t, jobs(n, n)...)
	drain(t, f)
	return restore
}

// What a plan follows from is looked at again before it is carried out.
func TestRepair_of_another_situation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, db *database, b *broker, r *Repairer, p *Plan){
		"another repair was quicker": func(t *testing.T, _ *database, _ *broker, r *Repairer, p *Plan) { apply(t, r, p) },
		"the cursor moved": func(t *testing.T, _ *database, b *broker, r *Repairer, _ *Plan) {
			// Another copy of the database sends: by count it looks the same.
			info, err := r.store.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			subject := r.cfg.Subjects.Cursor(schema.Jobs, info.ID, info.Generation[schema.Jobs], 0)
			c, err := readCursor(t.Context(), b.nc, "MB_JOBS", subject, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.writeCursor(t.Context(), "MB_JOBS", subject, c.Cursor, c.Seq); err != nil {
				t.Fatal(err)
			}
		},
		"a row in doubt is gone": func(t *testing.T, db *database, _ *broker, _ *Repairer, _ *Plan) {
			if err := db.exec(`DELETE FROM ` + db.prefix + `outbox WHERE id IN (SELECT id FROM ` + db.prefix + `outbox ORDER BY seq LIMIT 1)`); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databases(t, func(t *testing.T, open func(testing.TB) *database) {
				db, b := open(t), openBroker(t)
				restore := runAhead(t, db, b, 20)
				takeJobs(t, b, 20)
				restore()
				r := newRepairer(t, db, b)
				p := plan(t, r, RepairOptions{Ambiguous: Resend})
				wantPlan(t, p, true, "may have been sent")
				change(t, db, b, r, p)
				if err := r.Apply(t.Context(), p); !errors.Is(err, ErrPlanChanged) {
					t.Errorf("apply: %v, want %v", err, ErrPlanChanged)
				}
			})
		})
	}
}
