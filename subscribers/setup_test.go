package subscribers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/subscribers"
)

const (
	patience = time.Minute
	topic    = "orders.placed"
	durable  = "worker"
)

// bundle is a server with one stream, ORDERS, on orders.>.
type bundle struct {
	server *testkit.Server
	js     jetstream.JetStream
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	b := &bundle{server: testkit.NATS(t)}
	b.js = b.server.JetStream(t)
	b.stream(t, jetstream.WorkQueuePolicy)
	return b
}

func (b *bundle) stream(t *testing.T, retention jetstream.RetentionPolicy) {
	t.Helper()
	_, err := b.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: retention})
	if err != nil {
		t.Fatal(err)
	}
}

// config has short times; edits change it.
func config(t *testing.T, edits ...func(*subscribers.Config)) subscribers.Config {
	cfg := subscribers.Config{
		Stream: "ORDERS", AckWait: 2 * time.Second, Heartbeat: 200 * time.Millisecond, CloseTimeout: 100 * time.Millisecond, Logger: testkit.Logger(t),
		Consumer: func(topic string) subscribers.ConsumerSpec {
			return subscribers.ConsumerSpec{Durable: durable, Filters: []string{topic}}
		},
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	return cfg
}

func (b *bundle) subscriber(t *testing.T, edits ...func(*subscribers.Config)) *subscribers.Subscriber {
	t.Helper()
	sub, err := subscribers.New(b.server.JetStream(t), config(t, edits...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	return sub
}

func subscribe(t *testing.T, sub *subscribers.Subscriber) <-chan *message.Message {
	t.Helper()
	msgs, err := sub.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// publish stores n messages with the ids 0 to n-1 and their id as payload.
func (b *bundle) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint(i)
		b.publishMsg(t, &nats.Msg{Subject: topic, Data: []byte(id), Header: nats.Header{"_watermill_message_uuid": {id}}})
	}
}

func (b *bundle) publishMsg(t *testing.T, m *nats.Msg) {
	t.Helper()
	if _, err := b.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, msgs <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-msgs:
		if !ok {
			t.Fatal("the channel is closed, want a message")
		}
		return m
	case <-time.After(patience):
		t.Fatal("no message came")
		return nil
	}
}

// none fails if a message comes within d.
func none(t *testing.T, msgs <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case m, ok := <-msgs:
		if ok {
			t.Fatalf("got message %q, want none", m.UUID)
		}
		t.Fatal("the channel is closed, want it open")
	case <-time.After(d):
	}
}

func delivery(t *testing.T, m *message.Message) *subscribers.Delivery {
	t.Helper()
	d, ok := subscribers.DeliveryFrom(m.Context())
	if !ok {
		t.Fatal("the message's context has no delivery")
	}
	return d
}

func (b *bundle) info(t *testing.T) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := b.js.Consumer(t.Context(), "ORDERS", durable)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

// waiting waits until the consumer is asked for messages.
func (b *bundle) waiting(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if b.info(t).NumWaiting == 0 {
			return errors.New("no request waits")
		}
		return nil
	})
}

// left waits until the stream holds n messages.
func (b *bundle) left(t *testing.T, n uint64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		s, err := b.js.Stream(t.Context(), "ORDERS")
		if err != nil {
			return err
		}
		if got := s.CachedInfo().State.Msgs; got != n {
			return fmt.Errorf("the stream holds %d messages, want %d", got, n)
		}
		return nil
	})
}

// settlements notes what the consumer is told: the words and whether an answer is asked for.
type settlements struct {
	mu    sync.Mutex
	words map[string]int
}

func (b *bundle) settlements(t *testing.T) *settlements {
	t.Helper()
	s := &settlements{words: make(map[string]int)}
	nc := b.server.Conn(t)
	_, err := nc.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		word, _, _ := strings.Cut(string(m.Data), " ")
		if m.Reply != "" {
			word += "?"
		}
		s.words[word]++
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *settlements) count(word string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.words[word]
}

func unhealthy(sub *subscribers.Subscriber, text string) func() error {
	return func() error {
		if err := sub.Health(); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("health is %v, want %q in it", err, text)
		}
		return nil
	}
}

func healthy(sub *subscribers.Subscriber) func() error { return sub.Health }

func wantErr(t *testing.T, err, target error, texts ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}
