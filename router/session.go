package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// source is one durable consumer of a chain.
type source struct {
	stream  schema.Stream
	durable string
	filters []string
	onlyNew bool // a consumer that does not exist yet skips what is in the stream
}

func (s source) String() string { return fmt.Sprintf("%s (%s)", s.durable, s.stream) }

// feed is a source that is consumed.
type feed struct {
	source
	chain   *chain
	sub     *subscribers.Subscriber
	handler *message.Handler
}

// What the parts of a stop may take beyond the close timeout, each a little more than the one before, so that each
// comes to its end by itself.
const (
	subscriberGrace = time.Second
	routerGrace     = 5 * time.Second
)

// session is one time that a bridge consumes.
type session struct {
	b          *Bridge
	router     *message.Router
	runs       *runs
	unfinished atomic.Int64
	failed     chan error // an end that nobody asked for
	stopping   chan struct{}
	background sync.WaitGroup
	cancel     context.CancelFunc // of the background

	mu    sync.Mutex
	feeds []*feed
}

func newSession(b *Bridge) *session {
	return &session{
		b: b, runs: newRuns(b.cfg.Store, b.cfg.Lease, b.cfg.Logger),
		failed: make(chan error, 1), stopping: make(chan struct{}),
	}
}

// start begins to consume. After an error there is nothing to stop.
func (s *session) start(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.background.Go(func() { s.runs.renewEvery(background) })
	if slices.ContainsFunc(s.b.chains, func(c *chain) bool { return c.breaker != nil }) {
		s.lookAtCircuits(ctx)
		s.background.Go(func() { s.watchCircuits(background) })
	}
	if len(s.b.chains) == 0 {
		return nil
	}
	var err error
	if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: s.b.cfg.CloseTimeout + routerGrace}, routerLogger{s.b.cfg.Logger}); err == nil {
		err = s.addFeeds(ctx)
	}
	if err != nil {
		cancel()
		s.background.Wait()
		return err
	}
	s.background.Go(func() {
		if err := s.router.Run(context.WithoutCancel(ctx)); err != nil {
			s.fail(err)
		}
	})
	select {
	case <-s.router.Running():
	case err := <-s.failed:
		for _, f := range s.all() {
			err = errors.Join(err, f.sub.Close())
		}
		cancel()
		s.background.Wait()
		return err
	}
	for _, f := range s.all() {
		s.background.Go(func() { s.watch(f) })
	}
	return nil
}

// addFeeds makes the consumers and their handlers.
func (s *session) addFeeds(ctx context.Context) error {
	var feeds []*feed
	for _, c := range s.b.chains {
		c.runs = s.runs
		for _, src := range c.sources {
			f, err := s.feed(c, src)
			if err != nil {
				return err
			}
			err = f.sub.SubscribeInitialize(src.String())
			switch {
			case err != nil && schema.KindOf(err) == schema.Permanent:
				return fmt.Errorf("consume for %s: %w", c.name, err)
			case err != nil: // it goes on trying, and Health says so
				c.log.WarnContext(ctx, "consumer not ready yet", "target", c.name, "error", schema.Reason(err))
			}
			feeds = append(feeds, f)
		}
	}
	for _, f := range feeds {
		f.handler = s.router.AddConsumerHandler(f.String(), f.String(), f.sub, func(msg *message.Message) error {
			_, err := f.chain.handle(msg)
			return err
		})
		f.handler.AddMiddleware(f.chain.middlewares()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = feeds
	return nil
}

// all returns the feeds; before the start there are none.
func (s *session) all() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds
}

func (s *session) feed(c *chain, src source) (*feed, error) {
	cfg := s.b.cfg
	sub, err := subscribers.New(s.b.js, subscribers.Config{
		Stream: cfg.Subjects.StreamName(src.stream),
		Consumer: func(string) subscribers.ConsumerSpec {
			return subscribers.ConsumerSpec{
				Durable: src.durable, Filters: src.filters, Start: subscribers.Start{New: src.onlyNew}, Metadata: s.b.marks(c.policy.Mode),
			}
		},
		MaxInFlight: c.policy.Concurrency, Order: s.b.order(c), AckWait: cfg.AckWait, Heartbeat: cfg.Heartbeat,
		DoubleAck: c.policy.Mode == handlers.ModeNone, Bare: true, CloseTimeout: cfg.CloseTimeout + subscriberGrace, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("consume for %s: %w", c.name, err)
	}
	return &feed{source: src, chain: c, sub: sub}, nil
}

// order is what keeps the messages of an ordered handler in order; nil for others.
func (b *Bridge) order(c *chain) *subscribers.Order {
	if !c.policy.Ordered {
		return nil
	}
	return &subscribers.Order{Key: c.orderingKey, Lease: b.cfg.Store, TTL: b.cfg.Lease}
}

// orderingKey returns what a message keeps the order with. A message that cannot be read waits for nobody.
func (c *chain) orderingKey(d *subscribers.Delivery) string {
	relative, ok := c.subjects.Relative(d.Subject)
	if !ok {
		return ""
	}
	env, err := schema.Decode(relative, d.Header, d.Payload)
	if err != nil || env.OrderingKey == "" {
		return ""
	}
	return env.Tenant + "\x00" + env.OrderingKey
}

// marks are what the consumers of a handler say to verify.
func (b *Bridge) marks(mode handlers.Mode) map[string]string {
	marks := map[string]string{}
	if b.outbox != "" {
		marks[schema.MarkInbox] = b.outbox
	}
	if mode == handlers.ModeNone || b.outbox == "" {
		marks[schema.MarkUnrecorded] = "true" // it stays when the mode changes: what was handled before has no record
	}
	return marks
}

// watch reports a subscription that ends although nobody stops it.
func (s *session) watch(f *feed) {
	select {
	case <-f.handler.Stopped():
		select {
		case <-s.stopping:
		default:
			s.fail(fmt.Errorf("the subscription of %s has ended unexpectedly", f))
		}
	case <-s.stopping:
	}
}

func (s *session) fail(err error) {
	select {
	case s.failed <- err:
	default: // one is enough
	}
}

// stop takes nothing more and lets handlers finish; after the close timeout it ends their contexts. The error says how
// many did not finish.
func (s *session) stop() error {
	close(s.stopping)
	s.runs.stop()
	limit := time.AfterFunc(s.b.cfg.CloseTimeout, func() { s.unfinished.Store(int64(s.runs.cutAll())) })
	var err error
	if s.router != nil {
		err = s.router.Close()
	}
	limit.Stop()
	s.cancel()
	s.background.Wait()
	if n := s.unfinished.Load(); n > 0 {
		s.b.cfg.Logger.Warn("stopped with unfinished handlers", "unfinished", n, "limit", s.b.cfg.CloseTimeout)
		return fmt.Errorf("%w: %d after %v; their messages come back", ErrUnfinished, n, s.b.cfg.CloseTimeout)
	}
	if err != nil {
		return fmt.Errorf("stop consuming: %w", err)
	}
	return nil
}
