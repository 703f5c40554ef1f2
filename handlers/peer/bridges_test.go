package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// bridge is a whole Millbridge that receives, and whose handlers keep what they get.
type bridge struct {
	name   string
	store  *sqlite.Store
	router *router.Bridge
	js     jetstream.JetStream
	server *httptest.Server
	loops  atomic.Int64 // messages that nobody behind it took, because they had been there

	mu  sync.Mutex
	got []string // ids that the bridge's own subscriber handled
}

// newBridge opens a bridge that takes everything from the one called before.
func newBridge(t *testing.T, name, before string) *bridge {
	t.Helper()
	b := &bridge{name: name, store: testkit.SQLiteStore(t)}
	var err error
	conn := testkit.NATS(t).Conn(t)
	b.js = testkit.JetStream(t, conn)
	b.router, err = router.Open(t.Context(), router.Config{Store: b.store, Conn: conn, Replicas: 1, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	b.server = serve(t, receiver(t, peer.StoreIn(b.store, b.router.Nudge), func(c *peer.ReceiverConfig) {
		c.Origin, c.Senders = name, map[string]peer.Sender{before: {Secrets: secrets(secretA), Allow: []string{"events.>"}}}
	}))
	keep := handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got = append(b.got, env.ID)
		return nil
	})
	if err := b.router.Subscribe(handlers.Subscription{Name: "keep", Events: []string{">"}, Handler: keep}); err != nil {
		t.Fatal(err)
	}
	return b
}

// passTo sends the bridge's events to another.
func (b *bridge) passTo(t *testing.T, other *bridge) {
	t.Helper()
	h := sender(t, other.server.URL, func(c *peer.Config) { c.Origin = b.name })
	counted := handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
		err := h.Handle(ctx, env)
		if err != nil && strings.Contains(err.Error(), "loop") {
			b.loops.Add(1)
		}
		return err
	})
	sub := handlers.Subscription{Name: "pass-on", Events: []string{">"}, Handler: counted, Policy: handlers.Policy{
		Ordered: true, Retry: schema.RetryPolicy{MaxAttempts: 50, Base: 20 * time.Millisecond, Factor: 1},
	}}
	if err := b.router.Subscribe(sub); err != nil {
		t.Fatal(err)
	}
}

func (b *bridge) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (b *bridge) publish(t *testing.T, envs ...schema.Envelope) {
	t.Helper()
	if _, err := publishers.NewOutbox(b.store, publishers.Config{Nudge: b.router.Nudge}).PublishAlone(t.Context(), envs...); err != nil {
		t.Fatal(err)
	}
}

func (b *bridge) handled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// TestBridges_in_a_circle pass a message round and stop before the one that it came from.
func TestBridges_in_a_circle(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var ring []*bridge
			for i := range n {
				before := (i + n - 1) % n
				ring = append(ring, newBridge(t, "abc"[i:i+1], "abc"[before:before+1]))
			}
			for i, b := range ring {
				b.passTo(t, ring[(i+1)%n])
			}
			var want []string
			for _, b := range ring {
				b.run(t)
				want = append(want, b.name+"-1")
				b.publish(t, schema.NewEvent("order.placed", nil, schema.WithID(b.name+"-1")))
			}
			testkit.Eventually(t, time.Minute, func() error {
				for _, b := range ring {
					if got := slices.Sorted(slices.Values(b.handled())); !slices.Equal(got, want) {
						return fmt.Errorf("%s has handled %q, want %q", b.name, got, want)
					}
					if loops := b.loops.Load(); loops != 1 { // with the message of the one behind it
						return fmt.Errorf("%s has noticed %d loops", b.name, loops)
					}
				}
				return nil
			})
		})
	}
}

// The way between two bridges is bad, and what comes out at its end is complete and in order.
func TestBridges_keep_count_and_order_over_a_bad_network(t *testing.T) {
	t.Parallel()
	a, b := newBridge(t, "a", "none"), newBridge(t, "b", "a")
	var n atomic.Int64
	bad := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 5 {
		case 1: // does not arrive
			panic(http.ErrAbortHandler)
		case 2: // the answer does not arrive
			b.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 3:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			b.server.Config.Handler.ServeHTTP(w, r)
		}
	}))
	a.passTo(t, &bridge{server: bad})
	a.run(t)
	b.run(t)
	const keys, each = 3, 10
	for i := range each {
		for key := range keys {
			a.publish(t, schema.NewEvent("x", nil, schema.WithID(fmt.Sprintf("%d-%d", key, i)), schema.WithOrderingKey(fmt.Sprint(key))))
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		if got := len(b.handled()); got < keys*each {
			return fmt.Errorf("%d handled", got)
		}
		return nil
	})
	next := map[string]int{}
	for _, id := range stored(t, b) {
		key, i, _ := strings.Cut(id, "-")
		if i != fmt.Sprint(next[key]) {
			t.Errorf("key %s has %s in place of %d", key, i, next[key])
		}
		next[key]++
	}
	for key, got := range next {
		if got != each {
			t.Errorf("key %s has %d messages", key, got)
		}
	}
	if len(next) != keys {
		t.Errorf("%d keys", len(next))
	}
}

// stored returns the ids in the stream of events, in order: several handlers may run at the same time.
func stored(t *testing.T, b *bridge) (list []string) {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), "MB_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(msg.Subject, ".events.") && !strings.Contains(msg.Subject, ".cursor.") {
			list = append(list, msg.Header.Get(schema.HeaderID))
		}
	}
	return list
}
