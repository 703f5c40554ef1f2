package brokerdown

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
)

// Commits and acks whose connection is reset before the answer: the server did what it was asked for, and nobody here
// knows.
func TestReset_before_the_answer(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(4, 100), func(i int) {
		fired(t, w.sender.net.ResetAnswer("Nats-Batch-Commit", `"seq":`))
		fired(t, w.worker.net.ResetOn(netproxy.Up, "+ACK"))
	})
	w.finish(t)
}

// Connections that are reset in the middle of a batch, of a delivery, or anywhere.
func TestReset_in_the_middle(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(2, 50), func(i int) {
		fired(t, w.sender.net.ResetOn(netproxy.Up, "Nats-Batch-Sequence: 2\r\n"))
		fired(t, w.sender.net.ResetOn(netproxy.Up, "Nats-Batch-Commit"))
		fired(t, w.worker.net.ResetOn(netproxy.Down, "mb.jobs.crm.tell"))
		fired(t, w.sender.net.ResetAfter(netproxy.Both, 1000+137*i))
		fired(t, w.worker.net.ResetAfter(netproxy.Both, 1000+1371*i))
	})
	w.finish(t)
}

func fired(t *testing.T, trip *netproxy.Trip) {
	t.Helper()
	select {
	case <-trip.Fired():
	case <-time.After(patience):
		t.Fatal("no connection was reset")
	}
}

// Connections that look open and are dead. A client notices by the pings that nobody answers.
func TestHalf_open(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	modes := []func(p *netproxy.Proxy){
		func(p *netproxy.Proxy) { p.Freeze(netproxy.Up) },
		func(p *netproxy.Proxy) { p.Freeze(netproxy.Down) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Up) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Down) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Both) },
	}
	w.again(t, times(5, 10), func(i int) {
		for _, n := range []*node{w.sender, w.worker} {
			before := n.net.Taken()
			began := time.Now()
			modes[i%len(modes)](n.net)
			testkit.Eventually(t, 10*time.Minute, func() error { // it gives the connection up and tries again
				if n.net.Taken() == before {
					return errStill
				}
				return nil
			})
			t.Logf("mode %d: the dead connection was given up after %v", i%len(modes), time.Since(began).Round(10*time.Millisecond))
			n.net.Heal()
		}
	})
	w.finish(t)
}

// A handler finishes while its connection is dead: its ack is lost, the message comes again, and the inbox knows it.
func TestHalf_open_while_a_handler_runs(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	var runs, held atomic.Int64
	gate := make(chan struct{})
	var armed atomic.Bool
	w.hold = func() {
		runs.Add(1)
		if armed.Load() {
			held.Add(1)
			<-gate
		}
	}
	w.again(t, 1, func(int) {
		armed.Store(true)
		testkit.Eventually(t, patience, func() error {
			if held.Load() < 3 {
				return errStill
			}
			return nil
		})
		w.worker.net.Swallow(netproxy.Both)
		armed.Store(false)
		close(gate) // the handlers finish, and nobody hears their acks
		w.worker.says(t, "not consuming")
		w.worker.net.Heal()
	})
	w.finish(t)
	if h := held.Load(); h == 0 {
		t.Error("no handler was held")
	}
}

// The network is slow: everything takes longer, and nothing else changes.
func TestNetwork_slow(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}, pace: 500 * time.Millisecond})
	for _, pace := range []netproxy.Pace{
		{Latency: 100 * time.Millisecond, Jitter: 50 * time.Millisecond},
		{BytesPerSecond: 50_000},
	} {
		w.again(t, 1, func(int) {
			taken := w.sender.net.Taken() + w.worker.net.Taken()
			for _, n := range []*node{w.sender, w.worker} {
				n.net.Slow(pace)
			}
			began := time.Now()
			w.recovers(t) // slow as it is, a message gets through and all is well
			for time.Since(began) < 3*time.Second {
				if p := strings.Join(w.problems(t), "; "); p != "" {
					t.Errorf("%+v: %s", pace, p)
				}
				<-time.After(100 * time.Millisecond)
			}
			if n := w.sender.net.Taken() + w.worker.net.Taken(); n != taken {
				t.Errorf("%+v: %d connections were lost", pace, n-taken)
			}
			for _, n := range []*node{w.sender, w.worker} {
				n.net.Heal()
			}
		})
	}
	w.finish(t)
}
