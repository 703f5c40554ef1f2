package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router/kvinbox"
	"github.com/millbridge/millbridge/schema"
)

// ErrBusy reports a bridge that runs already, or a target that is added while it does.
var ErrBusy = errors.New("the bridge is running")

// errPool reports a database pool with a single connection. A handler's transaction keeps a connection while the handler
// runs, and what renews leases, forwards and writes failures down must not wait for it.
var errPool = schema.WithKind(schema.Permanent,
	errors.New("the database pool has 1 connection, want at least 2: one for the transaction of a handler, one for everything else"))

// maxUnits is more than handlers run at the same time.
const maxUnits = 1 << 12

// A Bridge forwards an outbox and runs handlers. Make one with [Open]. It is safe for concurrent use.
type Bridge struct {
	cfg       Config
	js        natsjs.JetStream
	outbox    string               // id of the store's outbox
	inbox     Inbox                // the store's, gathered
	forwarder *jetstream.Forwarder // nil with Config.NoForward
	units     chan struct{}        // one place for each transaction that handlers may hold

	mu     sync.Mutex
	chains []*chain
	names  map[string]string // what each name was given to
	active *session          // nil unless it runs
	stop   context.CancelFunc
	ended  chan struct{} // of the active session
}

// Open checks the database and the server, creates the streams that are missing, and returns a bridge that does not run
// yet.
func Open(ctx context.Context, cfg Config) (*Bridge, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	cfg = cfg.withDefaults()
	js, err := natsjs.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	if cfg.Store == nil {
		inbox, err := kvinbox.Open(ctx, js, kvinbox.Config{Subjects: cfg.Subjects, Replicas: cfg.Replicas})
		if err != nil {
			return nil, fmt.Errorf("open bridge: %w", err)
		}
		cfg.Store = noDatabase{inbox}
	}
	if err := cfg.Store.Check(ctx); err != nil {
		return nil, fmt.Errorf("open bridge: check database: %w", err)
	}
	if err := cfg.Store.CheckRights(ctx); err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	weak, err := cfg.Store.WeakSettings(ctx)
	if err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	for _, note := range weak {
		cfg.Logger.WarnContext(ctx, "weak setting", "note", note)
	}
	info, err := cfg.Store.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	units := min(cfg.Store.MaxUnits(), maxUnits)
	if units < 1 {
		return nil, fmt.Errorf("open bridge: %w", errPool)
	}
	streams := jetstream.StreamsConfig{Subjects: cfg.Subjects, Replicas: cfg.Replicas, MaxBytes: cfg.MaxBytes, Logger: cfg.Logger}
	if err := jetstream.EnsureStreams(ctx, js, streams); err != nil {
		return nil, fmt.Errorf("open bridge: %w", err)
	}
	b := &Bridge{cfg: cfg, js: js, outbox: info.ID, inbox: gather(cfg.Store), units: make(chan struct{}, units), names: make(map[string]string)}
	if !cfg.NoForward {
		if b.forwarder, err = jetstream.NewForwarder(forwarderStore{cfg.Store}, cfg.Conn, cfg.Forwarder); err != nil {
			return nil, fmt.Errorf("open bridge: %w", err)
		}
	}
	return b, nil
}

// Target adds a target, whose jobs its handler gets from the next run on. Its name must not be one of another target
// or subscription: both name consumers and replays.
func (b *Bridge) Target(t handlers.Target) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := b.checkPolicy(t.Name, t.Policy); err != nil {
		return err
	}
	c := b.chain(t.Name, t.Handler, t.Policy)
	c.sources = []source{{
		stream: schema.Jobs, durable: t.Name,
		filters: []string{b.cfg.Subjects.Target(t.Name), b.cfg.Subjects.Replays(t.Name)},
	}}
	return b.add(c, "a target")
}

// Subscribe adds a subscription, whose handler gets matching events from the next run on, each once. Names are unique
// among targets and subscriptions.
func (b *Bridge) Subscribe(s handlers.Subscription) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := b.checkPolicy(s.Name, s.Policy); err != nil {
		return err
	}
	c := b.chain(s.Name, s.Handler, s.Policy)
	events := source{stream: schema.Events, durable: s.Name, onlyNew: s.From == handlers.FromNew}
	for _, name := range s.Events {
		events.filters = append(events.filters, b.cfg.Subjects.Event(name))
	}
	replays := source{stream: schema.Jobs, durable: s.Name, filters: []string{b.cfg.Subjects.Replays(s.Name)}}
	c.sources = []source{events, replays}
	return b.add(c, "a subscription")
}

func (b *Bridge) chain(name string, h handlers.Handler, policy handlers.Policy) *chain {
	policy = policy.OrDefault()
	c := &chain{
		name: name, handler: h, policy: policy, subjects: b.cfg.Subjects, events: b.cfg.Subjects.StreamName(schema.Events), lease: b.cfg.Lease, inbox: b.inbox,
		hooks: slices.Clone(b.cfg.Hooks), nudge: b.Nudge,
		breaker: newBreaker(b.cfg.Store, name, policy.Breaker, b.Nudge, b.cfg.Logger),
		letters: deadletters.New(b.js, b.cfg.Subjects, 0),
		slots:   make(chan struct{}, policy.Concurrency), trials: make(chan struct{}, 1), pace: newPace(policy.Rate, b.cfg.Store), log: b.cfg.Logger, firstPause: firstPause,
	}
	if policy.Mode == handlers.ModeTx {
		c.units = b.units
	}
	if b.outbox != "" {
		c.source, c.reports = schema.SourceOf(b.outbox), true
	}
	return c
}

func (b *Bridge) add(c *chain, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != nil {
		return fmt.Errorf("add %s %q: %w", what, c.name, ErrBusy)
	}
	if other, clash := b.names[c.name]; clash {
		return fmt.Errorf("%s cannot be named %q: that is the name of %s, and their consumers and replays would be the same", what, c.name, other)
	}
	b.names[c.name] = what
	b.chains = append(b.chains, c)
	return nil
}

// Publish puts messages into the outbox in a transaction of its own and wakes the forwarder. To publish together with
// business rows use publishers.Outbox.
func (b *Bridge) Publish(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	now := time.Now().UTC()
	timed := make([]schema.Envelope, len(envs))
	for i, e := range envs {
		if e.Time.IsZero() {
			e.Time = now
		}
		timed[i] = e
	}
	var receipts []schema.Receipt
	err := b.cfg.Store.Unit(ctx, func(u schema.Unit) (err error) {
		receipts, err = u.Append(ctx, timed)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.Nudge()
	return receipts, nil
}

// Nudge makes the forwarder look at the outbox now. Call it after a commit; without it messages leave a little later.
// It never blocks.
func (b *Bridge) Nudge() {
	if b.forwarder != nil {
		b.forwarder.Nudge()
	}
}

// Close stops a bridge that runs, as the end of Run's context does, and waits for it. The store and the connection stay
// open. Closing twice is allowed.
func (b *Bridge) Close() error {
	b.mu.Lock()
	stop, ended := b.stop, b.ended
	b.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return nil
}

// enter makes one run the only one; leave must be called at its end.
func (b *Bridge) enter(ctx context.Context) (s *session, stopped context.Context, leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != nil {
		return nil, nil, nil, ErrBusy
	}
	stopped, b.stop = context.WithCancel(ctx)
	b.active, b.ended = newSession(b), make(chan struct{})
	return b.active, stopped, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stop()
		close(b.ended)
		b.active, b.stop = nil, nil
	}, nil
}

// jobFilters lists what targets and subscriptions take from the stream of jobs: a subscription takes its replays.
func (b *Bridge) jobFilters() (filters []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.chains {
		for _, src := range c.sources {
			if src.stream == schema.Jobs {
				filters = append(filters, src.filters...)
			}
		}
	}
	return filters
}
