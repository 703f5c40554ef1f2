//go:build long

package brokerdown

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
)

// A cluster of three with replicated streams: leaders step down, servers die, most of them die.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t, 3)
	var urls []string
	for i := range 3 {
		urls = append(urls, c.Server(i).URL())
	}
	w := open(t, setting{servers: urls, replicas: 3})
	for name, fault := range map[string]func(i int){
		"stream leaders step down": func(int) {
			for _, s := range []string{"MB_JOBS", "MB_EVENTS", "MB_DEAD"} {
				if err := c.StepDown(s); err != nil {
					t.Error(err)
				}
			}
		},
		"consumer leaders step down": func(int) {
			for _, s := range []string{"MB_JOBS.books", "MB_JOBS.crm", "MB_JOBS.till", "MB_JOBS.audit", "MB_EVENTS.audit"} {
				w.ask(t, "$JS.API.CONSUMER.LEADER.STEPDOWN."+s)
			}
		},
		"the leader of all dies": func(int) {
			for i := range 3 {
				if c.Server(i).Server().JetStreamIsLeader() {
					c.Kill(i)
					w.recovers(t)
					c.Restart(i)
					c.AwaitReady()
					return
				}
			}
		},
		"the leader dies": func(int) {
			dead := leader(t, c, "MB_JOBS")
			c.Kill(dead)
			w.recovers(t)
			c.Restart(dead)
			c.AwaitReady()
		},
		"the quorum is lost": func(i int) {
			one, two := i%3, (i+1)%3
			c.Kill(one)
			c.Kill(two)
			w.sender.says(t, "no leader")
			w.worker.says(t, "not consuming")
			w.statusSays(t, "unknown: ")
			c.Restart(one)
			c.Restart(two)
			c.AwaitReady()
		},
	} {
		began := len(w.recovered)
		w.again(t, 10, fault)
		t.Logf("%s: recovered in %v", name, w.recovered[began:])
	}
	w.finish(t)
}

func (w *world) ask(t *testing.T, subject string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		reply, err := w.js.Conn().Request(subject, nil, 2*time.Second)
		if err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		if !strings.Contains(string(reply.Data), `"success":true`) {
			return fmt.Errorf("%s: %s", subject, reply.Data)
		}
		return nil
	})
}

func leader(t *testing.T, c *testkit.NATSCluster, stream string) (i int) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if i = c.Leader(stream); i < 0 {
			return errStill
		}
		return nil
	})
	return i
}
