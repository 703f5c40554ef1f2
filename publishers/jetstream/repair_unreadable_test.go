package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// A stranger writes to a cursor's subject. The shard stops and says so, and a repair finds the former cursor, or what was
// sent without it, and writes over the stranger.
func TestRepair_of_what_is_no_cursor(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for name, c := range map[string]struct {
			rollup bool // it has taken the cursor's place
			says   string
			unsure int
		}{
			"behind the cursor":   {false, "the cursor before it, of batch 2, is still there", 0},
			"in place of the one": {true, "it is taken for a lost cursor", 8},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				envs := jobs(0, 22, schema.WithOrderingKey("one"))
				db.mustPublish(t, envs[:10]...)
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				db.mustPublish(t, envs[10:]...)
				former := takeHand(t, db, b, envs[0], faults{}).take().send(4)
				stranger := nats.NewMsg(former.subject)
				stranger.Data = []byte("x")
				if c.rollup {
					stranger.Header.Set("Nats-Rollup", "sub")
				}
				if _, err := b.js.PublishMsg(t.Context(), stranger); err != nil {
					t.Fatal(err)
				}
				wantStop(t, anyone{db}, b, StopUnreadable)
				r := newRepairer(t, db, b)
				stops, err := r.Stops(t.Context())
				if err != nil || len(stops) != 1 || stops[0].Stop != StopUnreadable {
					t.Errorf("stopped are %v (%v)", stops, err)
				}
				p := plan(t, r, RepairOptions{Ambiguous: Resend})
				wantPlan(t, p, true, "is none (decode cursor", c.says, "Find out who writes to "+former.subject)
				if len(p.Rows) != c.unsure {
					t.Errorf("%d rows are in doubt, want %d", len(p.Rows), c.unsure)
				}
				apply(t, r, p)
				if got := former.commit(t.Context(), former.stageRows(3)); codeOf(got) != codeWrongSequence {
					t.Errorf("the former owner's batch: %v, want code %d", got, codeWrongSequence)
				}
				drain(t, newForwarder(t, anyone{db}, b.nc, quick(t)))
				wantStored(t, b, "MB_JOBS", envs)
			})
		}
	})
}
