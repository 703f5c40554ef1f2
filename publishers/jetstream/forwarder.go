package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// ForwarderConfig tunes a [Forwarder]; the zero value works.
type ForwarderConfig struct {
	Subjects schema.Subjects
	// Name says in the database who owns a shard. Default: the host's name and the process id.
	Name string
	// Lease is how long a crashed process keeps its shards. Default 15 s.
	Lease time.Duration
	// BatchRows is how many rows go into one atomic batch. Lower it only for a server that takes fewer messages in one
	// (max_batch_size). Default and most: 999.
	BatchRows int
	// EventTTL is how long the stream keeps an event, at least a second. Default 7 days; negative keeps it for ever.
	EventTTL time.Duration
	// AckTimeout is how long to wait for an answer of the server before asking the cursor. Default 5 s.
	AckTimeout time.Duration
	// PollMin and PollMax bound the wait between two looks at an empty outbox. Default 2 ms and 100 ms.
	PollMin, PollMax time.Duration
	// RetryMax bounds the growing wait after a failure. Default 5 s.
	RetryMax time.Duration
	// StopTimeout bounds how long a stop waits for batches under way. Default 10 s.
	StopTimeout time.Duration
	// TendEvery is the longest time between two looks at scheduled messages and old records. Default 1 s.
	TendEvery time.Duration
	// Feeds are other tables whose messages are put into the outbox, such as a stock Watermill outbox.
	Feeds  []Feed
	Logger *slog.Logger // nil logs nothing

	faults faults
}

func (c ForwarderConfig) withDefaults() ForwarderConfig {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.Lease, 15*time.Second)
	set(&c.EventTTL, 7*24*time.Hour)
	set(&c.AckTimeout, 5*time.Second)
	set(&c.PollMin, 2*time.Millisecond)
	set(&c.PollMax, 100*time.Millisecond)
	set(&c.RetryMax, 5*time.Second)
	set(&c.StopTimeout, 10*time.Second)
	set(&c.TendEvery, time.Second)
	if c.BatchRows == 0 {
		c.BatchRows = schema.MaxBatchRows
	}
	c.PollMax = max(c.PollMax, c.PollMin)
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports all fields that make no sense.
func (c ForwarderConfig) Validate() error {
	errs := []error{c.Subjects.Validate()}
	for _, d := range []struct {
		name string
		time.Duration
	}{
		{"lease", c.Lease},
		{"ack timeout", c.AckTimeout},
		{"poll min", c.PollMin},
		{"poll max", c.PollMax},
		{"retry max", c.RetryMax},
		{"stop timeout", c.StopTimeout},
		{"tend every", c.TendEvery},
	} {
		if d.Duration < 0 {
			errs = append(errs, fmt.Errorf("%s is %v, must not be negative", d.name, d.Duration))
		}
	}
	if c.Lease != 0 && c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("lease is %v, must be at least 100ms", c.Lease))
	}
	if c.BatchRows < 0 || c.BatchRows > schema.MaxBatchRows {
		errs = append(errs, fmt.Errorf("batch rows is %d, must be between 1 and %d", c.BatchRows, schema.MaxBatchRows))
	}
	if c.EventTTL > 0 && c.EventTTL < time.Second {
		errs = append(errs, fmt.Errorf("event TTL is %v, the server takes 1s or more", c.EventTTL))
	}
	return errors.Join(errs...)
}

// A Forwarder moves rows of the outbox to their streams. Only one of Run, Drain and DrainOnce works at a time; the
// others wait.
type Forwarder struct {
	store  Store
	nc     *nats.Conn
	js     jetstream.JetStream
	cfg    ForwarderConfig
	log    *slog.Logger
	busy   chan struct{} // taken by the one that works
	nudges atomic.Int64
	nudged chan struct{}
	feeds  []*feeding

	mu     sync.Mutex
	shards []*shard
	fault  string // why the shards cannot be loaded
}

const madeWith = ": make it with nats.Connect(url, jetstream.ConnectOptions()...), from publishers/jetstream"

// NewForwarder returns a forwarder for one database. It does no I/O. The connection must have been made with
// [ConnectOptions]. The streams should have been seen by [EnsureStreams]; if they are missing, rows wait.
func NewForwarder(store Store, nc *nats.Conn, cfg ForwarderConfig) (*Forwarder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure forwarder: %w", err)
	}
	if nc.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("configure forwarder: the connection keeps messages back while it is down and sends them later" + madeWith)
	}
	if !nc.Opts.AllowReconnect || nc.Opts.MaxReconnect >= 0 {
		return nil, errors.New("configure forwarder: the connection gives up after some time" + madeWith)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("configure forwarder: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Forwarder{
		store: bounded{store, max(cfg.Lease, leastPatience)}, nc: nc, js: js, cfg: cfg, log: cfg.Logger, busy: make(chan struct{}, 1),
		nudged: make(chan struct{}, 1), feeds: newFeedings(cfg),
	}, nil
}

// Nudge makes the forwarder look at the outbox now, and shards that wait after a failure or for another owner try again.
// It never blocks.
func (f *Forwarder) Nudge() {
	for _, sh := range f.all() {
		signal(sh.nudged)
	}
	f.nudges.Add(1)
	signal(f.nudged)
}

func (f *Forwarder) all() []*shard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shards
}

// Fault says what keeps a forwarder that runs from looking at its shards, or nothing. [Forwarder.Status] speaks of what
// it knows of them.
func (f *Forwarder) Fault() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

func (f *Forwarder) setFault(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = text
}

// NudgeSubject is where processes that publish may send an empty core NATS message after a commit, so that a forwarder
// elsewhere need not wait for its next look. Messages are sent without it too, a little later.
func NudgeSubject(s schema.Subjects) string { return s.Full("nudge") }

// load makes the shards of the outbox known.
func (f *Forwarder) load(ctx context.Context) error {
	info, err := f.store.Info(ctx)
	if err != nil {
		return fmt.Errorf("load shards: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := make(map[schema.ShardRef]*shard, len(f.shards))
	for _, sh := range f.shards {
		if sh.outboxID == info.ID {
			old[sh.ref] = sh
		}
	}
	f.shards = nil
	for _, stream := range schema.Streams {
		for i := range info.Shards[stream] {
			ref := schema.ShardRef{Stream: stream, Generation: info.Generation[stream], Shard: i}
			if old[ref] == nil {
				old[ref] = newShard(f, ref, info)
			}
			f.shards = append(f.shards, old[ref])
		}
	}
	return nil
}
