package jetstream

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// makeDue makes scheduled messages of a stream due since an hour.
func (d *database) makeDue(t *testing.T, stream schema.Stream) {
	t.Helper()
	past := `now() - interval '1 hour'`
	if d.prefix == "millbridge_" {
		past = `0`
	}
	if err := d.exec(`UPDATE ` + d.prefix + `scheduled SET due_at = ` + past + ` WHERE stream = '` + string(stream) + `' AND subject NOT LIKE '%later%'`); err != nil {
		t.Fatal(err)
	}
}

func scheduledIDs(t *testing.T, d *database) map[string]bool {
	t.Helper()
	rows, err := d.repair.ListScheduled(t.Context(), schema.RowFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, row := range rows {
		ids[messageID(row.Row)] = true
	}
	return ids
}

func storedIDs(t *testing.T, b *broker, stream string) map[string]int {
	t.Helper()
	times := make(map[string]int)
	for _, m := range stored(t, b.js, stream) {
		times[m.header.Get(schema.HeaderID)]++
	}
	return times
}

// What waited for its time in the backup and was sent since is not sent again.
func TestRepair_scheduled_rows_of_an_older_database(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for _, choice := range []Ambiguous{Resend, Park} {
			t.Run(string(choice), func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				key, soon := schema.WithOrderingKey("one"), schema.WithDelay(time.Hour)
				due := jobs(0, 6, key, soon)
				event := schema.NewEvent("order.paid", 1, key, soon)
				later := schema.NewJob("shop", "later", 1, key, schema.WithDelay(48*time.Hour))
				db.mustPublish(t, append(append([]schema.Envelope{}, due...), event, later)...)
				restore := db.backup(t)
				db.makeDue(t, schema.Jobs)
				db.makeDue(t, schema.Events)
				cfg := quick(t)
				cfg.BatchRows = 1
				f := newForwarder(t, db, b.nc, cfg)
				drain(t, f)
				db.mustPublish(t, jobs(10, 3, key)...)
				db.mustPublish(t, schema.NewEvent("order.shipped", 1, key))
				drain(t, f)
				takeJobs(t, b, 2)
				restore()
				db.makeDue(t, schema.Jobs)

				wantStopOf(t, db, b, schema.Jobs, StopDatabaseBehind)
				r := newRepairer(t, db, b)
				p := plan(t, r, RepairOptions{})
				wantPlan(t, p, false, "of 7 scheduled messages the stream has 4", "2 scheduled messages had become due", "of 1 scheduled messages the stream has 1")
				if len(p.Rows) != 2 || p.Rows[0].ID != due[0].ID || p.Rows[1].ID != due[1].ID || !p.Rows[0].Scheduled {
					t.Errorf("in doubt are %+v, want the first two", p.Rows)
				}
				apply(t, r, plan(t, r, RepairOptions{Ambiguous: choice}))
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				again := storedIDs(t, b, "MB_JOBS")
				for i, e := range due {
					want := 1
					if i < 2 && choice == Park {
						want = 0
					}
					if again[e.ID] != want {
						t.Errorf("job %d is stored %d times, want %d", i, again[e.ID], want)
					}
				}
				if n := storedIDs(t, b, "MB_EVENTS")[event.ID]; n != 1 {
					t.Errorf("the event is stored %d times", n)
				}
				if left := scheduledIDs(t, db); len(left) != 1 || !left[later.ID] {
					t.Errorf("scheduled are %v, want only what is not due", left)
				}
				if rows, err := db.parked(t.Context(), schema.RowFilter{}); err != nil || (len(rows) == 2) != (choice == Park) {
					t.Errorf("%d are parked (%v)", len(rows), err)
				}
			})
		}
	})
}

// wantStopOf is wantStop where other shards may run.
func wantStopOf(t *testing.T, db Store, b *broker, stream schema.Stream, want Stop) {
	t.Helper()
	r := newRepairer(t, db.(*database), b)
	stops, err := r.Stops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stops {
		if s.Shard.Stream == stream && s.Stop == want {
			return
		}
	}
	t.Fatalf("the stops are %v, want %s of %s", stops, want, stream)
}

// A database that has lost only its last commits does not notice: the cursor still names all that was sent since, also
// what waits for its time again.
func TestTakeover_of_rows_that_are_scheduled_again(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		key, soon := schema.WithOrderingKey("one"), schema.WithDelay(time.Hour)
		due := jobs(0, 3, key, soon)
		later := schema.NewJob("shop", "later", 1, key, schema.WithDelay(48*time.Hour))
		db.mustPublish(t, append(append([]schema.Envelope{}, due...), later)...)
		hand := takeHand(t, db, b, due[0], faults{}).take()
		restore := db.backup(t)
		db.makeDue(t, schema.Jobs)
		if _, err := db.Tend(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		hand.reader.Reset()
		hand.send(3)
		if err := hand.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		restore()
		if left := scheduledIDs(t, db); len(left) != 4 {
			t.Fatalf("scheduled are %v", left)
		}
		if stops, err := newRepairer(t, db, b).Stops(t.Context()); err != nil || len(stops) > 0 {
			t.Fatalf("stops: %v, %v", stops, err)
		}
		f := newForwarder(t, anyone{db}, b.nc, quick(t))
		drain(t, f)
		if left := scheduledIDs(t, db); len(left) != 1 || !left[later.ID] {
			t.Errorf("scheduled are %v, want only what was not sent", left)
		}
		db.makeDue(t, schema.Jobs)
		drain(t, f)
		for i, e := range due {
			if n := storedIDs(t, b, "MB_JOBS")[e.ID]; n != 1 {
				t.Errorf("job %d is stored %d times", i, n)
			}
		}
	})
}

// A copy that gets an outbox of its own asks about what is scheduled as well.
func TestRepair_clone_with_scheduled_rows(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		soon := schema.NewJob("shop", "x", 1, schema.WithDelay(time.Hour))
		db.mustPublish(t, soon)
		r := newRepairer(t, db, b)
		p := plan(t, r, RepairOptions{AsClone: true})
		wantPlan(t, p, false, "1 scheduled messages were copied as well", "the original sends them too")
		apply(t, r, plan(t, r, RepairOptions{AsClone: true, Ambiguous: Park}))
		rows, err := db.parked(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) != 1 || messageID(rows[0].Row) != soon.ID || len(scheduledIDs(t, db)) != 0 {
			t.Errorf("parked are %+v, scheduled are %v (%v)", rows, scheduledIDs(t, db), err)
		}
	})
}

// A parked row that was released and sent since the backup is named, so that nobody replays it.
func TestRepair_names_parked_rows_that_were_sent(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		key := schema.WithOrderingKey("one")
		first := jobs(0, 1, key)[0]
		db.mustPublish(t, first)
		hand := takeHand(t, db, b, first, faults{}).take()
		rows, err := db.waiting(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) != 1 {
			t.Fatal(len(rows), err)
		}
		if err := db.Park(t.Context(), schema.ParkParams{ShardRef: hand.ref, Owner: hand.token, Name: rows[0].Name(), Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		restore := db.backup(t)
		if _, err := db.release(t.Context(), rows[0].Name()); err != nil {
			t.Fatal(err)
		}
		cfg := quick(t)
		cfg.BatchRows = 1
		db.mustPublish(t, jobs(1, 3, key)...)
		drain(t, newForwarder(t, db, b.nc, cfg))
		restore()
		wantStopOf(t, db, b, schema.Jobs, StopDatabaseBehind)
		wantPlan(t, plan(t, newRepairer(t, db, b), RepairOptions{}), true, "1 parked rows were released and sent before", first.ID)
	})
}
