package subscribers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// ErrClosed reports a call after Close.
var ErrClosed = errors.New("the subscriber is closed")

// closeGrace is how long Close waits for handlers to notice that their contexts have ended.
const closeGrace = time.Second

// Subscriber hands out messages of one stream. It is safe for concurrent use. Make one with [New].
type Subscriber struct {
	js  jetstream.JetStream
	cfg Config

	life       context.Context // ends when nobody waits for handlers any more
	end        context.CancelFunc
	abandon    chan struct{} // closed when Close's limit has passed: the messages' contexts end
	done       chan struct{} // closed when Close has finished
	unfinished atomic.Int64

	wg sync.WaitGroup // subscriptions, what serves them, and messages that are not settled

	mu     sync.Mutex
	closed bool
	subs   map[*subscription]struct{}
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// New returns a subscriber on js, whose connection it neither owns nor closes. The connection should reconnect without
// end and without a buffer for outgoing messages (nats.MaxReconnects(-1), nats.ReconnectBufSize(-1)).
func New(js jetstream.JetStream, cfg Config) (*Subscriber, error) {
	if err := cfg.validate(); err != nil {
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("subscriber: %w", err))
	}
	cfg = cfg.withDefaults()
	s := &Subscriber{
		js: js, cfg: cfg, subs: make(map[*subscription]struct{}),
		abandon: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe hands out the messages of topic's consumer until ctx ends or the subscriber is closed; then the channel is
// closed. The messages' contexts carry ctx's values but do not end with it.
//
// It fails when the consumer cannot be used ([ErrConsumer]). When the stream or the server is not there, it succeeds
// and keeps trying: see [Subscriber.Health].
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.open(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := sub.ensure(sub.ctx); err != nil {
		if schema.KindOf(err) == schema.Permanent {
			s.drop(sub)
			return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
		}
		sub.report(err)
	}
	go sub.run()
	return sub.out, nil
}

// SubscribeInitialize makes sure that topic's consumer exists, so that it gets what is published from then on.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	sub, err := s.open(context.Background(), topic)
	if err != nil {
		return err
	}
	defer s.drop(sub)
	if err := sub.ensure(sub.ctx); err != nil {
		return fmt.Errorf("initialize %s: %w", topic, err)
	}
	return nil
}

func (s *Subscriber) open(ctx context.Context, topic string) (*subscription, error) {
	spec := s.cfg.Consumer(topic)
	if err := spec.validate(); err != nil {
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("subscribe to %s: %w", schema.OneLine(topic), err))
	}
	sub := newSubscription(ctx, s, topic, spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		sub.cancel()
		return nil, ErrClosed
	}
	s.subs[sub] = struct{}{}
	s.wg.Add(1)
	return sub, nil
}

// drop forgets a subscription that has ended.
func (s *Subscriber) drop(sub *subscription) {
	sub.cancel()
	s.mu.Lock()
	delete(s.subs, sub)
	s.mu.Unlock()
	s.wg.Done()
}

// Close stops taking messages, gives back what was not handed out and waits until all others are settled, at most for
// [Config.CloseTimeout]. Then it ends the contexts of the messages that are still being handled; those that even then
// are not settled within a second are left to come back after their ack wait: see [Subscriber.Unfinished].
func (s *Subscriber) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	subs := maps.Clone(s.subs)
	s.mu.Unlock()
	if !first {
		<-s.done
		return nil
	}
	defer close(s.done)
	for sub := range subs {
		sub.cancel()
	}
	settled := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(settled)
	}()
	if !within(settled, s.cfg.CloseTimeout) {
		close(s.abandon)
		within(settled, closeGrace)
	}
	s.end()
	<-settled
	if n := s.Unfinished(); n > 0 {
		s.cfg.Logger.Warn("closed with messages that were still being handled", "stream", s.cfg.Stream, "unfinished", n)
	}
	return nil
}

// within waits for done, at most d, and reports whether it came.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Unfinished returns how many messages Close gave up on; they come back after their ack wait.
func (s *Subscriber) Unfinished() int { return int(s.unfinished.Load()) }

// Health returns nil while all subscriptions are consuming, and otherwise what keeps them from it. A subscription that
// hears nothing from the server is reported after two heartbeats.
func (s *Subscriber) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	var errs []error
	for sub := range s.subs {
		if err := sub.health(); err != nil {
			errs = append(errs, fmt.Errorf("not consuming %s: %w", sub.topic, err))
		}
	}
	return errors.Join(errs...)
}
