//go:build unix

package conformance

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
	"github.com/millbridge/millbridge/internal/testkit/pubsubtest"
	"github.com/millbridge/millbridge/publishers"
	forward "github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// TestPubSub runs Watermill's acceptance tests over outbox, forwarder and subscriber as one Pub/Sub. The broker is a
// process of its own, which is killed and restarted once, or with MILLBRIDGE_STRESS, which also brings the full numbers,
// on each store and in each way.
func TestPubSub(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		store := testkit.PostgresStore(t)
		run(t, store, forward.StoreOf(store), true)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		store := testkit.SQLiteStore(t)
		run(t, store, forward.StoreOf(store), false)
	})
}

// transactional is a store whose transactions the test can open.
type transactional[Tx any] interface {
	publishers.Store[Tx]
	InTx(ctx context.Context, fn func(tx Tx) error) error
}

// run has the broker restarted under messages without order, if it is to be.
func run[Tx any](t *testing.T, store transactional[Tx], source forward.Store, restart bool) {
	stress := os.Getenv("MILLBRIDGE_STRESS") != ""
	server := natsproc.Start(t)
	js := connect(t, server.URL())
	if err := forward.EnsureStreams(t.Context(), js, forward.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	forwarder, err := forward.NewForwarder(source, js.Conn(), forward.ForwarderConfig{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- forwarder.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the forwarder ended with %v", err)
		}
	})
	outbox := publishers.NewOutbox(store, publishers.Config{Nudge: forwarder.Nudge})

	for name, ordered := range map[string]bool{"concurrent": false, "ordered": true} {
		t.Run(name, func(t *testing.T) {
			pub := &publisher[Tx]{store: store, outbox: outbox, ordered: ordered, calls: make(chan call, 100)}
			served := make(chan struct{})
			ctx, stop := context.WithCancel(context.Background())
			go func() {
				defer close(served)
				pub.run(ctx)
			}()
			t.Cleanup(func() {
				stop()
				<-served
			})
			var order *subscribers.Order
			if ordered {
				order = &subscribers.Order{Key: func(*subscribers.Delivery) string { return "all" }, Lease: new(testkit.Leases)}
			}
			forGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				sub, err := subscribers.New(connect(t, server.URL()), subscribers.Config{
					Stream: schema.Subjects{}.StreamName(schema.Events), Order: order,
					AckWait: 5 * time.Second, Heartbeat: time.Second, CloseTimeout: 2 * time.Second,
					Consumer: func(topic string) subscribers.ConsumerSpec {
						spec := subscribers.PerTopic(group)(topic)
						spec.Filters = []string{schema.Subjects{}.Event(strings.TrimPrefix(topic, "events."))}
						return spec
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sub.Close() })
				return pub, sub
			}
			features := tests.Features{
				ConsumerGroups: true, Persistent: true, GuaranteedOrder: ordered, ForceShort: !stress,
				GenerateTopicFunc: func(c tests.TestContext) string { return "events.topic-" + c.TestID.String() },
			}
			if restart && !ordered || stress {
				features.RestartServiceCommand = server.RestartCommand()
			}
			pubsubtest.Run(t, features, forGroup)
		})
	}
}

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(forward.ConnectOptions(), nats.ReconnectWait(50*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// publisher gives all calls that come at the same time one transaction, as a service under load does. With ordered, all
// messages of a topic share an ordering key.
type publisher[Tx any] struct {
	store   transactional[Tx]
	outbox  *publishers.Outbox[Tx]
	ordered bool
	calls   chan call
}

type call struct {
	topic string
	msgs  []*message.Message
	done  chan error
}

func (p *publisher[Tx]) Publish(topic string, msgs ...*message.Message) error {
	if p.ordered {
		for _, m := range msgs {
			m.SetContext(schema.ContextWithOptions(m.Context(), schema.WithOrderingKey(topic)))
		}
	}
	c := call{topic, msgs, make(chan error, 1)}
	p.calls <- c
	return <-c.done
}

func (p *publisher[Tx]) Close() error { return nil }

// run serves calls until ctx ends.
func (p *publisher[Tx]) run(ctx context.Context) {
	for {
		var batch []call
		select {
		case c := <-p.calls:
			batch = append(batch, c)
		case <-ctx.Done():
			return
		}
	more:
		for {
			select {
			case c := <-p.calls:
				batch = append(batch, c)
			default:
				break more
			}
		}
		topics := make(map[string][]*message.Message)
		for _, c := range batch {
			topics[c.topic] = append(topics[c.topic], c.msgs...)
		}
		err := p.store.InTx(ctx, func(tx Tx) error {
			pub := p.outbox.Publisher(ctx, tx)
			for topic, msgs := range topics {
				if err := pub.Publish(topic, msgs...); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			p.outbox.Nudge()
		}
		for _, c := range batch {
			c.done <- err
		}
	}
}
