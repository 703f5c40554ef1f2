//go:build linux

package crash

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit/proof"
)

// A receiver is the other side of handlers that call a system over HTTP. It remembers every call.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	calls   map[proof.Effect]int
	n       int
	entered map[proof.Effect]bool
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{calls: make(map[proof.Effect]int), entered: make(map[proof.Effect]bool)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.n++
		slow := r.n%60 == 0
		r.calls[proof.Effect{
			Handler: strings.TrimPrefix(req.URL.Path, "/"), Key: req.Header.Get("Idempotency-Key"), ID: req.Header.Get("Webhook-Id"),
		}]++
		r.mu.Unlock()
		if slow {
			<-time.After(1500 * time.Millisecond)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// news returns the effects that it has not returned before.
func (r *receiver) news() (effects []proof.Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.calls {
		if !r.entered[e] {
			r.entered[e] = true
			effects = append(effects, e)
		}
	}
	return effects
}

// extra returns how many calls of a handler repeated an earlier one, and the keys that came with several ids.
func (r *receiver) extra(handler string) (repeats int, mixed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]string)
	for e, n := range r.calls {
		if e.Handler != handler {
			continue
		}
		repeats += n - 1
		if id := ids[e.Key]; id != "" && id != e.ID {
			mixed = append(mixed, e.Key)
		}
		ids[e.Key] = e.ID
	}
	return repeats, mixed
}
