package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// town is the HTTP server of the catalogue, the libraries and the desk. It keeps what was done under each idempotency
// key, and answers a repeat as it did the first time.
type town struct {
	mu      sync.Mutex
	answers map[string]string // by path and key
	effects []string          // path and body, in order
	seen    map[string]int    // requests by path
	// refuse returns the status with which the n-th request of a path is refused, 0 if it is not.
	refuse func(path string, n int) int
}

func newTown() *town { return &town{answers: map[string]string{}, seen: map[string]int{}} }

func (t *town) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil || key == "" || r.Method != http.MethodPut {
		http.Error(w, "want PUT with a key", http.StatusBadRequest)
		return
	}
	status, answer := t.do(r.URL.Path, key, string(body))
	w.WriteHeader(status)
	fmt.Fprint(w, answer)
}

func (t *town) do(path, key, body string) (status int, answer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[path]++
	if t.refuse != nil {
		if status := t.refuse(path, t.seen[path]); status != 0 {
			return status, "{}"
		}
	}
	if answer, again := t.answers[path+" "+key]; again {
		return http.StatusOK, answer
	}
	t.effects = append(t.effects, path+" "+body)
	switch {
	case path == "/catalogue/find":
		answer = `{"libraries":["north","south"]}`
	case strings.HasSuffix(path, "/request"):
		answer = fmt.Sprintf(`{"request":"R%d"}`, len(t.effects))
	case strings.HasSuffix(path, "/ship"):
		answer = fmt.Sprintf(`{"barcode":"B%d"}`, len(t.effects))
	default:
		answer = `{}`
	}
	t.answers[path+" "+key] = answer
	return http.StatusOK, answer
}

// done lists the paths of what was done, in order.
func (t *town) done() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var paths []string
	for _, e := range t.effects {
		path, _, _ := strings.Cut(e, " ")
		paths = append(paths, path)
	}
	return paths
}
