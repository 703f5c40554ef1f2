package brokerdown

import (
	"os/exec"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
)

// times is how often something is done to the broker.
func times(short, most int) int {
	if *long {
		return most
	}
	return short
}

// The server's process is killed and started again, again and again.
func TestServer_killed(t *testing.T) {
	t.Parallel()
	server := natsproc.Start(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(3, 30), func(i int) {
		cmd := server.RestartCommand()
		if out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("restart: %v: %s", err, out)
		}
	})
	w.finish(t)
}

// The server stops as it should, is away for a while and comes back.
func TestServer_restarted(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(2, 20), func(i int) {
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
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	away := 5 * time.Second
	if *long {
		away = 6 * time.Minute
	}
	w.again(t, 1, func(int) {
		w.sender.net.Refuse()
		w.worker.net.Refuse()
		<-time.After(away)
		w.sender.says(t, "NATS cannot be reached")
		w.worker.says(t, "not consuming")
		w.sender.net.Heal()
		w.worker.net.Heal()
	})
	w.finish(t)
}
