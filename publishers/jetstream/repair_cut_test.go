package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

var errKilled = errors.New("killed")

// cutStore ends a repair at its n-th step in the database, before the step or after it.
type cutStore struct {
	RepairStore
	left  *int
	after bool
}

func (s cutStore) cut(do func() error) error {
	*s.left--
	switch {
	case *s.left < 0 || *s.left == 0 && !s.after:
		return errKilled
	case *s.left > 0:
		return do()
	}
	if err := do(); err != nil {
		return err
	}
	return errKilled
}

func (s cutStore) RepairShard(ctx context.Context, p schema.RepairParams) error {
	return s.cut(func() error { return s.RepairStore.RepairShard(ctx, p) })
}

func (s cutStore) NewOutbox(ctx context.Context) (id string, err error) {
	err = s.cut(func() (err error) { id, err = s.RepairStore.NewOutbox(ctx); return err })
	return id, err
}

// Wherever a repair is killed, the shard is stopped as before or in order: nothing is sent in between that another run
// would not send.
func TestRepair_killed_at_any_step(t *testing.T) {
	t.Parallel()
	key := schema.WithOrderingKey("one")
	for name, c := range map[string]struct {
		short string // the store of the short form; the long one takes both
		opts  RepairOptions
		// spoil brings database and stream apart: of 12 jobs the first four are in the stream and in the database as well,
		// and it cannot be told of the others.
		spoil func(t *testing.T, db *database, b *broker, envs []schema.Envelope)
		want  []int // which of the jobs are in the stream in the end
	}{
		"cursor purged": {
			"sqlite",
			RepairOptions{StreamRecreated: true, Ambiguous: Park},
			func(t *testing.T, db *database, b *broker, envs []schema.Envelope) {
				db.mustPublish(t, jobs(100, 2, key)...)
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				db.mustPublish(t, envs...)
				takeHand(t, db, b, envs[0], faults{}).take().send(4)
				s, err := b.js.Stream(t.Context(), "MB_JOBS")
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Purge(t.Context(), natsjs.WithPurgeSubject("mb.cursor.>")); err != nil {
					t.Fatal(err)
				}
			},
			[]int{0, 1, 2, 3},
		},
		"database behind": {
			"postgres",
			RepairOptions{Ambiguous: Park},
			func(t *testing.T, db *database, b *broker, envs []schema.Envelope) {
				db.mustPublish(t, envs...)
				restore := db.backup(t)
				cfg := quick(t)
				cfg.BatchRows = 2
				drain(t, newForwarder(t, db, b.nc, cfg))
				takeJobs(t, b, 8)
				restore()
			},
			[]int{8, 9, 10, 11},
		},
		"foreign owner": {
			"sqlite",
			RepairOptions{},
			func(t *testing.T, db *database, b *broker, envs []schema.Envelope) {
				db.mustPublish(t, envs...)
				takeHand(t, db, b, envs[0], faults{}).take().send(4)
				takeHand(t, db, b, envs[0], faults{})
				if err := db.exec(`DELETE FROM ` + db.prefix + `owners`); err != nil {
					t.Fatal(err)
				}
			},
			[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
		},
		"copy": {
			"postgres",
			RepairOptions{AsClone: true, Ambiguous: Park},
			func(t *testing.T, db *database, b *broker, envs []schema.Envelope) {
				db.mustPublish(t, envs...)
				if db.prefix == "millbridge." {
					if err := db.exec(`UPDATE millbridge.meta SET database_oid = database_oid + 1`); err != nil {
						t.Fatal(err)
					}
				}
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := databases
			if !long {
				on = only(c.short)
			}
			on(t, func(t *testing.T, open func(testing.TB) *database) {
				for step, over := 1, false; !over; step++ {
					for _, after := range []bool{false, true} {
						db, b := open(t), openBroker(t)
						envs := jobs(0, 12, key)
						c.spoil(t, db, b, envs)
						left := step
						r := newRepairer(t, db, b)
						r.store = cutStore{RepairStore: db.repair, left: &left, after: after}
						err := r.Apply(t.Context(), plan(t, r, c.opts))
						if err == nil {
							if left <= 0 || step == 1 {
								t.Fatal("the cut was not noticed, or there was nothing to cut")
							}
							over = true
							break
						}
						if !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
						if db.prefix == "millbridge." {
							if err := db.exec(`UPDATE millbridge.shards SET lease_until = '-infinity'`); err != nil {
								t.Fatal(err)
							}
						}
						what := fmt.Sprintf("step %d, after it: %v", step, after)
						// A forwarder that looks in between must do no harm. A file does not know that it is a copy.
						if name != "copy" || db.prefix == "millbridge." {
							_, err := newForwarder(t, anyone{db}, b.nc, quick(t)).Drain(t.Context())
							if stop := (*StopError)(nil); err != nil && !errors.As(err, &stop) {
								t.Fatalf("%s: %v", what, err)
							}
						}
						r = newRepairer(t, db, b)
						if p := plan(t, r, c.opts); len(p.Lines) > 0 {
							apply(t, r, p)
						}
						drain(t, newForwarder(t, anyone{db}, b.nc, quick(t)))
						got := storedIDs(t, b, "MB_JOBS")
						want := make(map[string]int)
						for _, i := range c.want {
							want[envs[i].ID] = 1
						}
						for i, e := range envs {
							if got[e.ID] != want[e.ID] {
								t.Errorf("%s: job %d is stored %d times, want %d", what, i, got[e.ID], want[e.ID])
							}
						}
						rows, err := db.parked(t.Context(), schema.RowFilter{Limit: 100})
						if n := len(envs) - len(c.want); err != nil || name != "database behind" && len(rows) != n || len(rows) > n {
							t.Errorf("%s: %d are parked (%v), want %d", what, len(rows), err, n)
						}
					}
				}
			})
		})
	}
}
