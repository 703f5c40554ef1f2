package brokerdown

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
)

// A stream is full: rows wait, nothing is parked, and they flow when there is room.
func TestStream_full(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(2, 10), func(int) {
		streams := []string{"MB_EVENTS", "MB_JOBS"}
		for _, name := range streams {
			w.limit(t, name, func(c *natsjs.StreamConfig) { c.MaxBytes = 1 })
		}
		w.sender.says(t, "the stream is full")
		w.statusSays(t, "stream MB_JOBS is full")
		for _, name := range streams {
			w.limit(t, name, func(c *natsjs.StreamConfig) { c.MaxBytes = -1 })
		}
	})
	w.finish(t)
}

// limit changes a stream's limits.
func (w *world) limit(t *testing.T, name string, change func(c *natsjs.StreamConfig)) {
	t.Helper()
	s, err := w.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	change(&cfg)
	if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}
