package jetstream

import (
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestForwarder_drains_both_streams_in_order(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.nc, quick(t))
		const n = 2500
		var want []string
		for _, e := range jobs(0, n, schema.WithOrderingKey("one")) {
			want = append(want, e.ID)
			db.mustPublish(t, e, schema.NewEvent("order.paid", 1))
		}
		tally := drain(t, f)
		if want := (Tally{Claimed: 2 * n, Sent: 2 * n}); tally != want {
			t.Errorf("tally is %+v, want %+v", tally, want)
		}
		got := stored(t, b.js, "MB_JOBS")
		if len(got) != n {
			t.Fatalf("%d jobs are stored, want %d", len(got), n)
		}
		for i, m := range got {
			if m.id != want[i] {
				t.Fatalf("message %d is %s, want %s", i, m.id, want[i])
			}
		}
		if events := stored(t, b.js, "MB_EVENTS"); len(events) != n {
			t.Errorf("%d events are stored, want %d", len(events), n)
		}
		rows, err := db.waiting(t.Context(), schema.RowFilter{})
		if err != nil || len(rows) != 0 {
			t.Errorf("outbox still has %d rows (%v), want none", len(rows), err)
		}
		if tally := drain(t, f); tally != (Tally{}) {
			t.Errorf("second drain says %+v, want nothing", tally)
		}
	})
}
