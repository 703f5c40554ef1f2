package natsrelay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natsrelay"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func natsUser(name string) nats.Option { return nats.UserInfo(name, name) }

// A message is cut off wherever the server happens to be, and nothing is lost, doubled or out of order by that.
func TestRelay_keeps_count_and_order_while_the_other_side_restarts(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"in"}})
	h := relay(t, s, toSubject("in"))
	const keys, each, restarts = 4, 60, 2
	var sent, failed, restarted atomic.Int64
	var sentOf [keys]int
	var all sync.WaitGroup
	for key := range keys {
		all.Go(func() { // as a bridge does with ordered: one message of the key at a time, until it is done
			for i := 0; i < each || restarted.Load() < restarts; i++ {
				env := schema.NewEvent("x", []byte(fmt.Sprint(i)), schema.WithOrderingKey(fmt.Sprint(key)), schema.WithID(fmt.Sprintf("%d-%d", key, i)))
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					err := h.Handle(ctx, env)
					cancel()
					if err == nil {
						break
					}
					if t.Context().Err() != nil || schema.KindOf(err) == schema.Permanent {
						t.Error(err)
						return
					}
					failed.Add(1)
				}
				sent.Add(1)
				sentOf[key]++
			}
		})
	}
	for _, at := range [restarts]int64{40, 120} {
		testkit.Eventually(t, time.Minute, func() error {
			if n := sent.Load(); n < at {
				return fmt.Errorf("%d sent", n)
			}
			return nil
		})
		s.Restart()
		restarted.Add(1)
	}
	all.Wait()
	if failed.Load() == 0 {
		t.Error("no attempt has failed: the restarts have met none")
	}
	next := map[string]int{}
	for _, msg := range eventuallyAll(t, js, "S") {
		key := msg.Header.Get(schema.HeaderOrderingKey)
		if got := string(msg.Data); got != fmt.Sprint(next[key]) {
			t.Fatalf("key %s has %s, want %d", key, got, next[key])
		}
		next[key]++
	}
	for key := range keys {
		if n, want := next[fmt.Sprint(key)], sentOf[key]; n != want {
			t.Errorf("key %d has %d messages, want %d", key, n, want)
		}
	}
}

// eventuallyAll is all, once the test's own connection is back.
func eventuallyAll(t *testing.T, js jetstream.JetStream, name string) []*jetstream.RawStreamMsg {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := js.Stream(t.Context(), name)
		return err
	})
	return all(t.Context(), t, js, name)
}

// bridge is a whole Millbridge whose messages can be published and whose handlers keep what they get.
type bridge struct {
	name   string
	nats   *testkit.Server
	url    string
	opts   []nats.Option
	store  *sqlite.Store
	outbox interface {
		PublishAlone(context.Context, ...schema.Envelope) ([]schema.Receipt, error)
	}
	router *router.Bridge
	loops  atomic.Int64 // messages that came back

	mu  sync.Mutex
	got []string // ids that the bridge's own subscriber handled
}

// newBridge opens a bridge whose events go on to other.
func newBridge(t *testing.T, name string, s *testkit.Server, opts ...nats.Option) *bridge {
	t.Helper()
	b := &bridge{name: name, nats: s, url: s.URL(), opts: opts, store: testkit.SQLiteStore(t)}
	b.outbox = publishers.NewOutbox(b.store, publishers.Config{})
	var err error
	b.router, err = router.Open(t.Context(), router.Config{
		Store: b.store, Conn: s.Conn(t, opts...), Subjects: schema.Subjects{Prefix: name}, Replicas: 1, Logger: testkit.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
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

// passTo passes the bridge's events on to another.
func (b *bridge) passTo(t *testing.T, other *bridge, edits ...func(*natsrelay.Config)) {
	t.Helper()
	h := relay(t, other.nats, func(c *natsrelay.Config) {
		c.Origin, c.Prefix = b.name, other.name
		for _, edit := range edits {
			edit(c)
		}
	})
	counted := handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
		err := h.Handle(ctx, env)
		if errors.Is(err, schema.ErrLoop) {
			b.loops.Add(1)
		}
		return err
	})
	// Without an inbox of its own, which would notice a loop by itself as long as it remembers the message.
	sub := handlers.Subscription{Name: "pass-on", Events: []string{">"}, Handler: counted, Policy: handlers.Policy{Mode: handlers.ModeNone}}
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

func (b *bridge) handled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.got))
}

// TestBridges_in_a_circle pass a message round once and stop.
func TestBridges_in_a_circle(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var ring []*bridge
			for i := range n {
				ring = append(ring, newBridge(t, "abc"[i:i+1], testkit.NATS(t)))
			}
			for i, b := range ring {
				b.passTo(t, ring[(i+1)%n])
			}
			for _, b := range ring {
				b.run(t)
			}
			var want []string
			for _, b := range ring {
				id := b.name + "-1"
				want = append(want, id)
				if _, err := b.outbox.PublishAlone(t.Context(), schema.NewEvent("order.placed", nil, schema.WithID(id))); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Eventually(t, time.Minute, func() error {
				for _, b := range ring {
					if got := b.handled(); !slices.Equal(got, want) {
						return fmt.Errorf("%s has handled %q, want %q", b.name, got, want)
					}
					if loops := b.loops.Load(); loops != 1 { // its own message, when that comes back
						return fmt.Errorf("%s has noticed %d loops", b.name, loops)
					}
				}
				return nil
			})
			for _, b := range ring { // and there it ends
				if msgs := all(t.Context(), t, b.nats.JetStream(t), strings.ToUpper(b.name)+"_EVENTS"); count(msgs) > n+1 {
					t.Errorf("%s has %d events", b.name, count(msgs))
				}
			}
		})
	}
}

// count leaves out the forwarder's bookkeeping.
func count(msgs []*jetstream.RawStreamMsg) (n int) {
	for _, msg := range msgs {
		if !strings.Contains(msg.Subject, ".cursor.") {
			n++
		}
	}
	return n
}

// Two bridges share a server, each in an account of its own.
func TestBridges_in_two_accounts(t *testing.T) {
	t.Parallel()
	one, two := server.NewAccount("ONE"), server.NewAccount("TWO")
	s := testkit.NATS(t, func(o *server.Options) {
		o.Accounts = []*server.Account{one, two}
		o.Users = []*server.User{{Username: "one", Password: "one", Account: one}, {Username: "two", Password: "two", Account: two}}
	})
	for _, name := range []string{"ONE", "TWO"} {
		account, err := s.Server().LookupAccount(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := account.EnableJetStream(nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	a, b := newBridge(t, "a", s, natsUser("one")), newBridge(t, "b", s, natsUser("two"))
	a.passTo(t, b, func(c *natsrelay.Config) { c.User, c.Password = "two", secret("two") })
	a.run(t)
	b.run(t)
	var want []string
	for i := range 30 {
		id := fmt.Sprintf("m-%02d", i)
		want = append(want, id)
		if _, err := a.outbox.PublishAlone(t.Context(), schema.NewEvent("x", nil, schema.WithID(id))); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		if got := b.handled(); !slices.Equal(got, want) {
			return fmt.Errorf("handled %q", got)
		}
		return nil
	})
}
