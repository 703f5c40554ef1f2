package subscribers_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
	"github.com/millbridge/millbridge/internal/testkit/pubsubtest"
	"github.com/millbridge/millbridge/subscribers"
)

// streamPublisher puts Watermill messages into a stream the plainest way.
type streamPublisher struct{ js jetstream.JetStream }

func (p streamPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		m, err := (&wmnats.NATSMarshaler{}).Marshal(topic, msg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = p.js.PublishMsg(ctx, m)
		cancel()
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return nil
}

func (streamPublisher) Close() error { return nil }

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond))
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

// TestPubSub runs Watermill's acceptance tests, each on a server process of its own, which is killed and restarted. The
// full numbers, and the restart beside messages without order, are for MILLBRIDGE_STRESS.
func TestPubSub(t *testing.T) {
	t.Parallel()
	stress := os.Getenv("MILLBRIDGE_STRESS") != ""
	for _, c := range []struct {
		name    string
		ordered bool
	}{{"concurrent", false}, {"ordered", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := natsproc.Start(t)
			_, err := connect(t, server.URL()).CreateStream(t.Context(), jetstream.StreamConfig{Name: "SUITE", Subjects: []string{"suite.>"}})
			if err != nil {
				t.Fatal(err)
			}
			var order *subscribers.Order
			if c.ordered {
				order = inOneLine(new(testkit.Leases))
			}
			forGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				js := connect(t, server.URL())
				sub, err := subscribers.New(js, subscribers.Config{
					Stream: "SUITE", Consumer: subscribers.PerTopic(group), Order: order,
					AckWait: 5 * time.Second, Heartbeat: time.Second, CloseTimeout: 2 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sub.Close() })
				return streamPublisher{js}, sub
			}
			features := tests.Features{
				ConsumerGroups: true, Persistent: true, GuaranteedOrder: c.ordered, ForceShort: !stress,
				GenerateTopicFunc: func(c tests.TestContext) string { return "suite.topic-" + c.TestID.String() },
			}
			if c.ordered || stress {
				features.RestartServiceCommand = server.RestartCommand()
			}
			pubsubtest.Run(t, features, forGroup)
		})
	}
}
