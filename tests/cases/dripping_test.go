package cases

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// Many endpoints that answer a byte at a time, and a healthy one, all on one host and over the transport that all
// webhooks share: the healthy one gets its messages while all requests of the others that may run at once hang.
func TestC25_dripping_endpoints_cost_a_healthy_one_nothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const dripping, messages = 8, 40
		var hanging, healthy atomic.Int64
		release := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/drip") {
				healthy.Add(1)
				return
			}
			hanging.Add(1)
			defer hanging.Add(-1)
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			control := http.NewResponseController(w)
			for {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				_ = control.Flush()
				select {
				case <-tick.C:
				case <-release:
					return
				case <-r.Context().Done():
					return
				}
			}
		}))
		t.Cleanup(server.Close)
		targets := []handlers.Target{hook(t, "healthy", soon, webhook.Config{URL: text(server.URL + "/healthy")})}
		for i := range dripping {
			target := hook(t, fmt.Sprintf("drip-%d", i), soon, webhook.Config{URL: text(fmt.Sprintf("%s/drip/%d", server.URL, i)), Timeout: 10 * time.Minute})
			target.Policy.Timeout = 10 * time.Minute
			targets = append(targets, target)
		}
		run(t, w.open(t, targets...))
		for i := range dripping {
			for range handlers.DefaultConcurrency {
				w.publish(t, schema.NewJob(fmt.Sprintf("drip-%d", i), "do", nil))
			}
		}
		const all = dripping * handlers.DefaultConcurrency
		testkit.Eventually(t, time.Minute, func() error {
			if n := hanging.Load(); n != all {
				return fmt.Errorf("%d requests hang, want %d", n, all)
			}
			return nil
		})
		for range messages {
			w.publish(t, schema.NewJob("healthy", "do", nil))
		}
		testkit.Eventually(t, time.Minute, func() error {
			if n := healthy.Load(); n < messages {
				return fmt.Errorf("the healthy endpoint has got %d messages of %d", n, messages)
			}
			return nil
		})
		if n := hanging.Load(); n != all {
			t.Errorf("%d requests hang when the healthy endpoint has got everything, want %d", n, all)
		}
		close(release)
		for i := range dripping {
			w.settled(t, fmt.Sprintf("drip-%d", i))
		}
		if dead := w.dead(t); len(dead) != 0 {
			t.Errorf("%d dead letters", len(dead))
		}
	})
}
