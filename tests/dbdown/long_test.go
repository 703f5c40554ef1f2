//go:build long

package dbdown

import (
	"fmt"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

const long = true

// For a while the address of the database leads to its standby. What connections are left of that must not last.
func TestPostgres_pool_ends_up_on_a_standby(t *testing.T) {
	t.Parallel()
	primary := server(t, pgserver.Options{})
	standby, err := primary.Standby(pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop() })
	direct := pool(t, primary.URL(), nil)
	shared, proxy := behind(t, direct)
	w := onPostgres(t, shared, direct)
	stop := w.produce(3, 20*time.Millisecond)
	var back []time.Duration
	for range 4 {
		pause(2 * time.Second)
		proxy.Retarget(standby.URL())
		proxy.Cut()
		w.says(3*time.Minute, "health", "the database is read-only")
		w.says(3*time.Minute, "status", "is a standby: connect to the primary")
		proxy.Retarget(primary.URL())
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "on a standby", back)
}

// The standby has lagged behind when the primary is killed: commits are lost that were confirmed, removals of sent rows
// among them, and those rows come back. The bridge goes on working all the while and sends none of them again.
func TestPostgres_fails_over_to_a_standby_that_lags(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]time.Duration{"a_moment": 0, "seconds": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := server(t, pgserver.Options{})
			standby := follow(t, primary, false)
			watch := pool(t, either(t, primary, standby), nil)
			w := onPostgres(t, pool(t, either(t, primary, standby), nil), watch)
			stop := w.produce(2, 10*time.Millisecond)
			pause(2 * time.Second)
			// Rows that the standby still gets, while it does not get that they were sent and removed.
			var burst []schema.Envelope
			for i := range 3000 {
				burst = append(burst, schema.NewEvent("burst", i, schema.WithOrderingKey(fmt.Sprint("b", i%5))))
			}
			behind := pool(t, standby.URL(), nil)
			if err := w.publish(t.Context(), burst...); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, time.Minute, func() error {
				var n int
				err := behind.QueryRow(t.Context(), `SELECT count(*) FROM proof_committed WHERE id = $1`, burst[0].ID).Scan(&n)
				if err == nil && n == 0 {
					err = fmt.Errorf("the standby does not have the rows yet")
				}
				return err
			})
			for _, statement := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
				if _, err := behind.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Eventually(t, time.Minute, func() error {
				var n int
				err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_replication`).Scan(&n)
				if err == nil && n > 0 {
					err = fmt.Errorf("it still follows")
				}
				return err
			})
			<-time.After(lag)
			if err := primary.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := standby.Promote(); err != nil {
				t.Fatal(err)
			}
			stop()
			// Shards that cannot tell what was sent stop; the others go on.
			r := repairer(t, jetstream.RepairStoreOf(w.pg), w.conn)
			repaired := w.repaired(r, 2*time.Minute)
			if t.Logf("repaired: %q", repaired); lag > 0 && len(repaired) == 0 {
				t.Error("nobody noticed what was lost")
			}
			report, err := w.book.Check(t.Context(), w.js, schema.Subjects{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v", report)
			if len(report.Doubled) > 0 || len(report.Reordered) > 0 {
				t.Errorf("%d doubled, %d reordered: %v", len(report.Doubled), len(report.Reordered), report)
			}
			events, err := w.committed(schema.Events)
			if err != nil {
				t.Fatal(err)
			}
			lost := make(map[string]bool)
			for _, id := range report.Lost {
				lost[id] = true
			}
			for _, id := range events {
				if lost[id] {
					t.Errorf("event %s is lost", id)
				}
			}
		})
	}
}
