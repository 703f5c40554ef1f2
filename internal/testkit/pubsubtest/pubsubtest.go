//go:build unix

// Package pubsubtest runs Watermill's acceptance tests, including the one that restarts the broker.
package pubsubtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/millbridge/millbridge/internal/testkit/natsproc"
)

// Main prepares the process; call it first in TestMain.
func Main() {
	natsproc.Main()
	suppressSuiteRace()
}

// Run runs all acceptance tests.
func Run(t *testing.T, features tests.Features, forGroup tests.ConsumerGroupPubSubConstructor) {
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		pub, sub := forGroup(t, "")
		if strings.Contains(t.Name(), "/TestReconnect/") {
			last := &lastMessage{published: make(map[string]bool), all: make(chan struct{})}
			return lastPublisher{pub, last}, lastSubscriber{sub, last}
		}
		return pub, sub
	}, forGroup)
}

// lastMessage holds the last message back for a moment. The suite's TestReconnect notes what it has published in a
// goroutine of its own and compares as soon as the last message arrives, which may be before that note: then it misses
// one message.
type lastMessage struct {
	all chan struct{} // closed when every message is published

	mu        sync.Mutex
	published map[string]bool
}

const (
	reconnectMessages = 10000 // that TestReconnect publishes
	noteTime          = 500 * time.Millisecond
)

type lastPublisher struct {
	message.Publisher
	last *lastMessage
}

func (p lastPublisher) Publish(topic string, msgs ...*message.Message) error {
	if err := p.Publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	p.last.mu.Lock()
	defer p.last.mu.Unlock()
	for _, m := range msgs {
		if p.last.published[m.UUID] {
			continue
		}
		p.last.published[m.UUID] = true
		if len(p.last.published) == reconnectMessages {
			close(p.last.all)
		}
	}
	return nil
}

type lastSubscriber struct {
	message.Subscriber
	last *lastMessage
}

func (s lastSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		seen := make(map[string]bool)
		for m := range in {
			seen[m.UUID] = true
			if len(seen) == reconnectMessages {
				<-s.last.all
				<-time.After(noteTime)
			}
			out <- m
		}
	}()
	return out, nil
}
