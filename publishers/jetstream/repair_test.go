package jetstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func newRepairer(t *testing.T, db *database, b *broker) *Repairer {
	t.Helper()
	r, err := NewRepairer(db.repair, b.nc, quick(t), StreamsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r.margin = 0 // one clock
	return r
}

func plan(t *testing.T, r *Repairer, opts RepairOptions) *Plan {
	t.Helper()
	p, err := r.Plan(t.Context(), opts)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	return p
}

// wantPlan checks that a plan says all of this and is or is not ready to be applied.
func wantPlan(t *testing.T, p *Plan, ready bool, says ...string) {
	t.Helper()
	text := strings.Join(append(append([]string{}, p.Lines...), p.Undecided...), "\n")
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("the plan does not say %q:\n%s", s, text)
		}
	}
	if ready != (len(p.Undecided) == 0) {
		t.Errorf("the plan is ready: %v, want %v:\n%s", !ready, ready, text)
	}
}

func apply(t *testing.T, r *Repairer, p *Plan) {
	t.Helper()
	if err := r.Apply(t.Context(), p); err != nil {
		t.Fatalf("apply: %v", err)
	}
	if again := plan(t, r, RepairOptions{}); len(again.Lines)+len(again.Undecided) > 0 {
		t.Errorf("after the repair there is still to do: %v %v", again.Lines, again.Undecided)
	}
}

func wantStop(t *testing.T, db Store, b *broker, want Stop) {
	t.Helper()
	f := newForwarder(t, db, b.nc, quick(t))
	_, err := f.Drain(t.Context())
	var stop *StopError
	if !errors.As(err, &stop) || schema.KindOf(err) != schema.Permanent {
		t.Fatalf("drain: %v, want a stop", err)
	}
	for _, s := range f.Status() {
		if s.State == ShardStopped && s.Stop == want && s.Hint == want.Hint() && s.Error != "" {
			return
		}
	}
	t.Fatalf("drain: %v, want a stop because of %s", err, want)
}

// backup copies what a backup of the database would hold; the returned function restores it.
func (d *database) backup(t *testing.T) (restore func()) {
	t.Helper()
	tables := []string{"outbox", "scheduled", "parked", "shards", "owners"}
	run := func(format, table string) {
		if err := d.exec(strings.ReplaceAll(strings.ReplaceAll(format, "%o", d.prefix+table), "%b", "backup_"+table)); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range tables {
		run(`CREATE TABLE %b AS SELECT * FROM %o`, table)
	}
	return func() {
		for _, table := range tables {
			run(`DELETE FROM %o`, table)
		}
		insert := `INSERT INTO %o SELECT * FROM %b`
		if d.prefix == "millbridge." {
			insert = `INSERT INTO %o OVERRIDING SYSTEM VALUE SELECT * FROM %b`
		}
		for _, table := range tables {
			run(insert, table)
		}
	}
}

// take acknowledges n jobs, which are then gone.
func takeJobs(t *testing.T, b *broker, n int) {
	t.Helper()
	c, err := b.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{Durable: "shop", FilterSubject: "mb.jobs.shop.>", AckPolicy: natsjs.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(n)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		n--
	}
	if n != 0 {
		t.Fatalf("%d jobs are missing", n)
	}
}

func TestRepair_database_behind(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for _, choice := range []Ambiguous{Resend, Park} {
			t.Run(string(choice), func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				key := schema.WithOrderingKey("one")
				old, event := jobs(0, 20, key), schema.NewEvent("order.paid", 1, key)
				db.mustPublish(t, append(old, event)...)
				restore := db.backup(t)
				cfg := quick(t)
				cfg.BatchRows = 5
				f := newForwarder(t, db, b.nc, cfg)
				drain(t, f)
				lost := jobs(20, 5, key)
				db.mustPublish(t, append(lost, schema.NewEvent("order.shipped", 1, key))...)
				drain(t, f)
				takeJobs(t, b, 5)
				restore()
				fresh := jobs(25, 3, key)
				db.mustPublish(t, fresh...)
				wantStop(t, db, b, StopDatabaseBehind)

				r := newRepairer(t, db, b)
				p := plan(t, r, RepairOptions{})
				wantPlan(t, p, false, "Shard jobs/", "of 23 waiting rows the stream has 15", "5 waiting rows may have been sent", "of 1 waiting rows the stream has 1",
					"choose whether to resend or to park")
				if len(p.Rows) != 5 || p.Rows[0].ID != old[0].ID || p.Rows[4].ID != old[4].ID || p.Rows[0].Subject != "jobs.shop.order.paid" {
					t.Errorf("in doubt are %+v, want the first five", p.Rows)
				}
				if err := r.Apply(t.Context(), p); !errors.Is(err, ErrUndecided) {
					t.Errorf("apply without a decision: %v", err)
				}
				p = plan(t, r, RepairOptions{Ambiguous: choice})
				wantPlan(t, p, true)
				apply(t, r, p)
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				switch choice {
				case Resend:
					wantStored(t, b, "MB_JOBS", append(append(append(append([]schema.Envelope{}, old[5:]...), lost...), old[:5]...), fresh...))
				case Park:
					// What comes later under the same ordering key waits behind them.
					wantStored(t, b, "MB_JOBS", append(append([]schema.Envelope{}, old[5:]...), lost...))
					rows, err := db.parked(t.Context(), schema.RowFilter{})
					if err != nil || len(rows) < 5 || !strings.Contains(rows[0].Reason, "may have been sent") {
						t.Errorf("%d rows are parked (%v)", len(rows), err)
					}
				}
				if got := stored(t, b.js, "MB_EVENTS"); len(got) != 2 {
					t.Errorf("%d events are stored, want 2", len(got))
				}
			})
		}
	})
}

// copyDir copies what a stopped server keeps.
func copyDir(t *testing.T, from string) (restore func()) {
	t.Helper()
	copied := t.TempDir() + "/copy"
	if err := os.CopyFS(copied, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.RemoveAll(from), os.CopyFS(from, os.DirFS(copied))); err != nil {
			t.Fatal(err)
		}
	}
}

// restart stops the broker, lets change run and starts it again.
func (b *broker) restart(t *testing.T, change func()) {
	t.Helper()
	b.Stop()
	change()
	b.Restart()
	testkit.Eventually(t, time.Minute, func() error { return b.nc.FlushTimeout(time.Second) })
}

func TestRepair_stream_behind(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		key := schema.WithOrderingKey("one")
		f := newForwarder(t, db, b.nc, quick(t))
		old := jobs(0, 10, key)
		db.mustPublish(t, old...)
		drain(t, f)
		var restore func()
		b.restart(t, func() { restore = copyDir(t, b.StoreDir()) })
		lost := jobs(10, 7, key)
		db.mustPublish(t, lost...)
		drain(t, f)
		doubt := jobs(17, 3, key)
		db.mustPublish(t, doubt...)
		takeHand(t, db, b, old[0], faults{}).take().send(3) // sent, not removed
		b.restart(t, restore)
		wantStop(t, db, b, StopStreamBehind)

		r := newRepairer(t, db, b)
		p := plan(t, r, RepairOptions{})
		wantPlan(t, p, false, "the stream misses 7 messages", "3 waiting rows may have been sent")
		p = plan(t, r, RepairOptions{Ambiguous: Resend})
		wantPlan(t, p, true)
		apply(t, r, p)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		wantStored(t, b, "MB_JOBS", append(old, doubt...))
	})
}

func TestRepair_foreign_owner(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		envs := jobs(0, 12, schema.WithOrderingKey("one"))
		db.mustPublish(t, envs...)
		takeHand(t, db, b, envs[0], faults{}).take().send(4) // on a server whose last commits a fail-over loses
		takeHand(t, db, b, envs[0], faults{})
		if err := db.exec(`DELETE FROM ` + db.prefix + `owners`); err != nil {
			t.Fatal(err)
		}
		wantStop(t, anyone{db}, b, StopForeignOwner)
		r := newRepairer(t, db, b)
		p := plan(t, r, RepairOptions{})
		wantPlan(t, p, true, "of 12 waiting rows the stream has 4", "No other copy")
		apply(t, r, p)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		wantStored(t, b, "MB_JOBS", envs)
	})
}

// A database that was copied sends nothing until a person says which of the two goes on under the old name.
func TestRepair_clone(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]RepairOptions{
		"replaces the original": {},
		"lives beside it":       {AsClone: true, Ambiguous: Resend},
		"lives beside it, rows": {AsClone: true, Ambiguous: Park},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, b := openPostgres(t), openBroker(t)
			db.mustPublish(t, jobs(0, 10)...)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			if err := db.exec(`UPDATE millbridge.meta SET database_oid = database_oid + 1`); err != nil {
				t.Fatal(err)
			}
			f := newForwarder(t, db, b.Conn(t), quick(t))
			start(t, f)
			eventually(t, func() error {
				for _, s := range f.Status() {
					if s.State != ShardStopped || s.Stop != StopClone {
						return fmt.Errorf("status is %+v", s)
					}
				}
				return nil
			})
			repairClone(t, db, b, opts)
		})
	}
}

// SQLite does not notice that a file was copied; the operator may still give the copy a name of its own.
func TestRepair_clone_of_a_file(t *testing.T) {
	t.Parallel()
	for _, choice := range []Ambiguous{Resend, Park} {
		t.Run(string(choice), func(t *testing.T) {
			t.Parallel()
			db, b := openSQLite(t), openBroker(t)
			db.mustPublish(t, jobs(0, 10)...)
			drain(t, newForwarder(t, db, b.nc, quick(t)))
			repairClone(t, db, b, RepairOptions{AsClone: true, Ambiguous: choice})
		})
	}
}

// repairClone repairs a copy of a database that has sent ten jobs.
func repairClone(t *testing.T, db *database, b *broker, opts RepairOptions) {
	t.Helper()
	before, err := db.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db.mustPublish(t, jobs(10, 3)...)
	r := newRepairer(t, db, b)
	if opts.AsClone {
		wantPlan(t, plan(t, r, RepairOptions{AsClone: true}), false, "the original sends them too")
	}
	p := plan(t, r, opts)
	wantPlan(t, p, true, before.ID)
	apply(t, r, p)
	after, err := db.Info(t.Context())
	if err != nil || !after.Bound || (after.ID == before.ID) == opts.AsClone {
		t.Errorf("the outbox is %+v (%v), was %+v", after, err, before)
	}
	sent := 3
	if opts.Ambiguous == Park {
		sent = 0
	}
	db.mustPublish(t, jobs(13, 2)...)
	start(t, newForwarder(t, db, b.Conn(t), quick(t)))
	eventually(t, func() error {
		if n := len(stored(t, b.js, "MB_JOBS")); n != 12+sent {
			return fmt.Errorf("%d are stored, want %d", n, 12+sent)
		}
		return nil
	})
	if rows, err := db.parked(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 3-sent {
		t.Errorf("%d are parked (%v)", len(rows), err)
	}
}

func TestRepair_is_careful(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		r := newRepairer(t, db, b)
		if p := plan(t, r, RepairOptions{}); len(p.Lines)+len(p.Undecided) != 0 {
			t.Errorf("of a new outbox it says %v %v", p.Lines, p.Undecided)
		}
		key := schema.WithOrderingKey("one")
		db.mustPublish(t, jobs(0, 5, key)...)
		drain(t, newForwarder(t, db, b.nc, quick(t)))
		if _, err := r.Plan(t.Context(), RepairOptions{Ambiguous: "maybe"}); err == nil {
			t.Error("an unknown choice is taken")
		}
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		opts := RepairOptions{StreamRecreated: true, Ambiguous: Resend}
		p := plan(t, r, opts)
		db.mustPublish(t, jobs(5, 1, key)...)
		if err := r.Apply(t.Context(), p); err != nil { // producers do not wait for a repair
			t.Errorf("apply after a row has come in: %v", err)
		}
		if err := r.Apply(t.Context(), p); !errors.Is(err, ErrPlanChanged) {
			t.Errorf("apply of an old plan: %v", err)
		}
	})
}

// A shard that somebody works on is not repaired.
func TestRepair_leaves_a_shard_in_use_alone(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	f := newForwarder(t, db, b.Conn(t), quick(t))
	start(t, f)
	eventually(t, func() error {
		if s := f.Status(); len(s) == 0 || s[0].State != ShardRunning {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
	r := newRepairer(t, db, b)
	p := plan(t, r, RepairOptions{AsClone: true})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.Apply(ctx, p); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want that a shard is in use", err)
	}
}
