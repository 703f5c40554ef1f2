package router

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// Config says what a [Bridge] works on. Conn is required, and mostly Store; the zero value of all other fields works.
type Config struct {
	// Store is a migrated database; the bridge does not close it. A bridge that only handles (NoForward) may do without:
	// then a NATS KV bucket remembers what was handled. Mode tx, rate, order, breakers and jobs that are to report their
	// outcome are refused there.
	Store Store
	// Conn is a connection made with the options of [jetstream.ConnectOptions]; the bridge does not close it.
	Conn *nats.Conn
	// Subjects gives the prefix of all subjects and streams. Change it to run several bridges on one server.
	Subjects schema.Subjects
	// Replicas is how many copies new streams have; production needs 3. 0 means 1 for new streams and leaves existing
	// ones as they are.
	Replicas int
	// MaxBytes limits each new stream; 0 means no limit.
	MaxBytes int64
	// NoForward leaves the outbox to other processes.
	NoForward bool
	// Forwarder tunes the forwarder. Its Subjects and Logger are this configuration's.
	Forwarder jetstream.ForwarderConfig
	// CloseTimeout is how long handlers may go on when the bridge stops. Default: 30 seconds.
	CloseTimeout time.Duration
	// AckWait is how long the server waits for a sign of life before it hands a message to somebody else.
	// Default: 30 seconds.
	AckWait time.Duration
	// Lease is how long a crashed process keeps others from running the messages that it ran. It should end before the
	// server hands them out again. Default: two thirds of AckWait.
	Lease time.Duration
	// Heartbeat is how often the server shows that it still knows an idle consumer; after two without a word the bridge
	// reports that it is not consuming. Default: 5 seconds.
	Heartbeat time.Duration
	// Hooks are called around each step of every message, the first one outermost.
	Hooks []handlers.Hooks
	// Logger gets what happens: dead letters and faults at warn, retries at info. Default: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 30 * time.Second
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.Lease == 0 {
		c.Lease = c.AckWait * 2 / 3
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Forwarder.Subjects, c.Forwarder.Logger = c.Subjects, c.Logger
	return c
}

// Validate reports all fields that make no sense.
func (c Config) Validate() error {
	errs := []error{c.Subjects.Validate()}
	if c.Store == nil && !c.NoForward {
		errs = append(errs, errors.New("store: there is none, and only a bridge that does not forward can do without"))
	}
	if c.Conn == nil {
		errs = append(errs, errors.New("conn: there is none"))
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("replicas is %d, want 1 to 5", c.Replicas))
	}
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"close timeout", c.CloseTimeout, time.Millisecond},
		{"lease", c.Lease, 100 * time.Millisecond},
		{"ack wait", c.AckWait, 100 * time.Millisecond},
		{"heartbeat", c.Heartbeat, 100 * time.Millisecond},
	} {
		if d.value != 0 && d.value < d.least {
			errs = append(errs, fmt.Errorf("%s is %v, must be at least %v", d.name, d.value, d.least))
		}
	}
	if err := c.Forwarder.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("forwarder: %w", err))
	}
	return errors.Join(errs...)
}
