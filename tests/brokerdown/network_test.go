package brokerdown

import (
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

func fired(t *testing.T, trip *netproxy.Trip) {
	t.Helper()
	select {
	case <-trip.Fired():
	case <-time.After(patience):
		t.Fatal("no connection was reset")
	}
}

// A handler finishes while its connection is dead: its ack is lost, the message comes again, and the inbox knows it.
func TestHalf_open_while_a_handler_runs(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	var held atomic.Int64
	gate := make(chan struct{})
	var armed atomic.Bool
	w.hold = func() {
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
}
