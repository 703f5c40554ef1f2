package cases

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// lease is that of the forwarders here, unless the tests are long; a takeover needs no more than this and a look.
const lease = 2 * time.Second

// leased says how long leases last and how long a takeover may take. How fast it goes is for the long form: here it must
// come, however busy the machine is.
func leased() (length, takeover time.Duration) {
	if long {
		return 15 * time.Second, time.Minute // what a forwarder has by default, and the time of the case
	}
	return lease, 2 * time.Minute
}

// shipped waits until n events were sent and removed, for so long.
func (w *world) shipped(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	began := time.Now()
	w.sent(t, n)
	if d := time.Since(began); d > limit {
		t.Errorf("it took %v, want at most %v", d, limit)
	}
	if rows, err := w.rows(); err != nil || len(rows) != 0 {
		t.Errorf("%d rows are left, %v", len(rows), err)
	}
}

// flow publishes batches of a hundred until the events of n are committed.
func (w *world) flow(t *testing.T, from, n int) {
	t.Helper()
	for ; from < n; from += 100 {
		w.publish(t, numbered(from, 100)...)
	}
}

// A forwarder is killed while it moves batches of a hundred; another replica is there. Then the only one is killed and
// started again under the same name.
func TestC32_killed_process(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		lease, takeover := leased()
		var slowest time.Duration
		one := w.launch(t, processSpec{Name: "one", Lease: lease})
		flow := number(400, 1_000)
		w.flow(t, 0, flow)
		w.shipped(t, flow, takeover) // it runs
		total := flow
		for round := range number(3, 10) {
			name := "one" // under the same name, with nobody else
			if round == 0 {
				name = "two" // a replica, from the beginning
			}
			var other *process
			if round == 0 {
				other = w.launch(t, processSpec{Name: name, Lease: lease})
				other.says(t, "state=standby")
			}
			w.flow(t, total, total+flow)
			total += flow
			one.signal(t, os.Kill)
			if other == nil {
				other = w.launch(t, processSpec{Name: name, Lease: lease})
			}
			began := time.Now()
			w.shipped(t, total, takeover)
			slowest = max(slowest, time.Since(began))
			one = other
		}
		t.Logf("with leases of %v all was sent %v after a kill at the latest", lease, slowest.Round(time.Millisecond))
		w.inOrder(t, total)
	})
}

// A forwarder is stopped for several times its lease while it moves rows, and goes on.
func TestC32_stopped_process(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		lease, takeover := leased()
		pause := 2 * lease
		if long {
			pause = 2 * time.Minute
		}
		one := w.launch(t, processSpec{Name: "one", Lease: lease})
		w.flow(t, 0, 100)
		w.shipped(t, 100, takeover)
		two := w.launch(t, processSpec{Name: "two", Lease: lease})
		two.says(t, "state=standby")
		if w.pg == nil {
			w.standstill(t, one)
			w.flow(t, 100, 200)
			<-time.After(pause)
			if rows, err := w.rows(); err != nil || len(rows) != 100 {
				t.Errorf("%d rows wait (%v); the file is locked by a process that may go on at any time", len(rows), err)
			}
			w.nats.Restart()
			one.signal(t, syscall.SIGCONT)
			w.shipped(t, 200, takeover)
			w.standstill(t, one)
			w.flow(t, 200, 300)
			one.signal(t, os.Kill)
			w.shipped(t, 300, takeover)
			w.inOrder(t, 300)
			return
		}
		flow := number(1_000, 2_000)
		w.flow(t, 100, flow)
		one.signal(t, syscall.SIGSTOP)
		began := time.Now()
		w.shipped(t, flow, takeover)
		t.Logf("with leases of %v all was sent %v after the stop", lease, time.Since(began).Round(time.Millisecond))
		owners := w.owners(t)
		<-time.After(pause)
		w.nats.Restart()
		one.signal(t, syscall.SIGCONT)
		w.flow(t, flow, flow+100)
		w.shipped(t, flow+100, takeover)
		// It has found out and writes nothing: the shards are the other's, and nothing is there twice.
		testkit.Eventually(t, takeover, func() error {
			if n := strings.Count(one.output(), "state=standby"); n < 2 {
				return fmt.Errorf("%d shards are left to the other", n)
			}
			return nil
		})
		if now := w.owners(t); now != owners || !strings.Contains(now, "two/") || strings.Contains(now, "one/") {
			t.Errorf("the shards belong to %s, belonged to %s", now, owners)
		}
		w.inOrder(t, flow+100)
	})
}

// standstill stops p between its transactions: in the middle of one of SQLite it would keep everybody from writing.
func (w *world) standstill(t *testing.T, p *process) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		p.signal(t, syscall.SIGSTOP)
		err := w.inTx(func(u unit) error { return u.order("beside") })
		if err != nil {
			p.signal(t, syscall.SIGCONT)
		}
		return err
	})
}

// owners names those who wrote the ledger's last lines.
func (w *world) owners(t *testing.T) string {
	t.Helper()
	var all []string
	shards, err := w.store.Shards(t.Context(), schema.Events)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if s.Batch > 1 {
			all = append(all, s.LedgerOwner)
		}
	}
	return strings.Join(all, " ")
}

// A process that consumes is killed while it waits for more, and another one takes its consumer: a hundred jobs are a
// hundred starts.
func TestC16_killed_and_started_again(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var output string
		for _, name := range []string{"one", "two"} {
			jobs := make([]schema.Envelope, 50)
			ready := make([]string, len(jobs))
			for i := range jobs {
				jobs[i] = schema.NewJob("a", "do", nil)
				ready[i] = "handled a " + jobs[i].ID + "\n"
			}
			p := w.launch(t, processSpec{Name: name, Lease: 3 * lease, Targets: []string{"a"}})
			w.publish(t, jobs...)
			p.says(t, ready...)
			w.settled(t, "a")
			p.signal(t, os.Kill)
			output += p.output()
		}
		if n := strings.Count(output, "handled a "); n != 100 {
			t.Errorf("100 jobs were started %d times", n)
		}
		if n := len(w.dead(t)); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}
