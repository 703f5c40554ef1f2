//go:build long

package brokerdown

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

const long = true

// Connections that are reset in the middle of a batch, of a delivery, or anywhere.
func TestReset_in_the_middle(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, 50, func(i int) {
		fired(t, w.sender.net.ResetOn(netproxy.Up, "Nats-Batch-Sequence: 2\r\n"))
		fired(t, w.sender.net.ResetOn(netproxy.Up, "Nats-Batch-Commit"))
		fired(t, w.worker.net.ResetOn(netproxy.Down, "mb.jobs.crm.tell"))
		fired(t, w.sender.net.ResetAfter(netproxy.Both, 1000+137*i))
		fired(t, w.worker.net.ResetAfter(netproxy.Both, 1000+1371*i))
	})
	w.finish(t)
}

// Connections that look open and are dead. A client notices by the pings that nobody answers.
func TestHalf_open(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	modes := []func(p *netproxy.Proxy){
		func(p *netproxy.Proxy) { p.Freeze(netproxy.Up) },
		func(p *netproxy.Proxy) { p.Freeze(netproxy.Down) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Up) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Down) },
		func(p *netproxy.Proxy) { p.Swallow(netproxy.Both) },
	}
	w.again(t, 10, func(i int) {
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

// The network is slow: everything takes longer, and nothing else changes.
func TestNetwork_slow(t *testing.T) {
	t.Parallel()
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

// The server stops as it should, is away for a while and comes back.
func TestServer_restarted(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, 20, func(i int) {
		server.Stop()
		w.sender.says(t, "NATS cannot be reached")
		w.worker.says(t, "books: not consuming: not consuming books (jobs): NATS cannot be reached")
		w.statusSays(t, "NATS cannot be reached")
		server.Restart()
	})
	w.finish(t)
}

// The network is away for longer than any wait of ours: leases, ack waits, timeouts.
func TestNetwork_away_for_long(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, 1, func(int) {
		w.sender.net.Refuse()
		w.worker.net.Refuse()
		<-time.After(6 * time.Minute)
		w.sender.says(t, "NATS cannot be reached")
		w.worker.says(t, "not consuming")
		w.sender.net.Heal()
		w.worker.net.Heal()
	})
	w.finish(t)
}

// The guard of the cursors is deleted: it is made again, or the bridge says that it is missing.
func TestGuard_deleted(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, 1, func(i int) {
		if err := w.js.DeleteConsumer(t.Context(), "MB_JOBS", jetstream.GuardName); err != nil {
			t.Fatal(err)
		}
		w.statusSays(t, "consumer mb-cursor-guard of stream MB_JOBS is missing")
		testkit.Eventually(t, patience, func() error {
			_, err := w.js.Consumer(t.Context(), "MB_JOBS", jetstream.GuardName)
			return err
		})
	})
	w.finish(t)
}

// A stream is deleted. The bridge says so and sends nothing into another one of the same name, until an operator has
// accepted the loss; then it goes on, and nothing is lost but what the stream held.
func TestStream_deleted(t *testing.T) {
	t.Parallel()
	for _, stream := range schema.Streams {
		for _, how := range []string{"deleted", "recreated", "purged"} {
			t.Run(fmt.Sprintf("%s_%s", stream, how), func(t *testing.T) {
				t.Parallel()
				server := testkit.NATS(t)
				w := open(t, setting{servers: []string{server.URL()}})
				w.recovers(t)
				name := schema.Subjects{}.StreamName(stream)
				switch how {
				case "purged":
					s, err := w.js.Stream(t.Context(), name)
					if err == nil {
						err = s.Purge(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
				default:
					if err := w.js.DeleteStream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				switch how {
				case "deleted":
					w.sender.says(t, "the stream is missing")
					w.statusSays(t, "stream "+name+" is missing")
				case "recreated": // as a bridge does that starts
					if err := jetstream.EnsureStreams(t.Context(), w.js, jetstream.StreamsConfig{}); err != nil {
						t.Fatal(err)
					}
				}
				if how != "deleted" {
					w.sender.says(t, "stream_lost")
				}
				w.statusSays(t, "stream_lost")
				held := w.traffic.ids() // the shards have stopped: what comes after this is not in the old stream
				waiting := w.waiting(t)
				w.repair(t, jetstream.RepairOptions{StreamRecreated: true, Ambiguous: jetstream.Resend})
				w.recovers(t)
				w.traffic.stop(t)
				w.mayBeLost = func(id string) bool { return held[id] && !waiting[id] && w.streamOf(id) == stream }
				w.empty(t)
				report := w.check(t)
				t.Logf("%v", report)
			})
		}
	}
}

// ids returns what has been committed so far.
func (tr *traffic) ids() map[string]bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	all := make(map[string]bool)
	for id := range tr.of {
		all[id] = true
	}
	return all
}
