package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A Clock tells the time and calls back. Due times, waits between attempts, rates and the age of keys go by it.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f after d, in another goroutine or while the clock is moved. stop is false if it was too late.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// A Skipper is a clock that need not be waited for: a drain that has nothing to do before t moves it there.
type Skipper interface {
	Clock
	SkipTo(t time.Time)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Config tunes a [Queue]. The zero value works, except that Run refuses it.
type Config struct {
	// AllowLoss lets Run work with messages that are lost when the process ends. Drain and DrainUntilEmpty do not need it.
	AllowLoss bool
	// Clock is the system's clock by default.
	Clock Clock
	// Units runs a function in a database transaction, for targets with [handlers.ModeTx]: the Unit method of a store.
	Units func(ctx context.Context, fn func(schema.Unit) error) error
	// MaxMessages is how many messages may be kept at the same time; an event counts once per subscription. Default:
	// 100,000.
	MaxMessages int
	// MaxPayload limits a message's payload in bytes. Default: [schema.DefaultPayload], as for the outbox.
	MaxPayload int
	// KeepKeys is how long the idempotency key of a message is known after it was published and after it was handled.
	// Default: an hour. The outbox keeps them for 30 days.
	KeepKeys time.Duration
	// CloseTimeout is how long a stop goes on handling what is due. Default: 30 seconds.
	CloseTimeout time.Duration
	// Hooks are called around each run: the first begins first and ends last.
	Hooks []handlers.Hooks
	// OnDead is called with each message that is given up, which is kept all the same. It must not block.
	OnDead func(letter schema.DeadLetter)
	// Logger gets what happens: dead letters, parked messages and losses at warn, retries at info. Default: nothing is
	// logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.MaxMessages == 0 {
		c.MaxMessages = 100_000
	}
	if c.KeepKeys == 0 {
		c.KeepKeys = time.Hour
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 30 * time.Second
	}
	if c.OnDead == nil {
		c.OnDead = func(schema.DeadLetter) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Errors of a queue.
var (
	// ErrBusy reports a queue that runs already, or a target that is added while it does.
	ErrBusy = errors.New("the queue is running")
	// ErrFull reports that no more messages can be kept.
	ErrFull = errors.New("the queue is full")
	// ErrUnfinished reports that handlers did not finish, or messages that were due were not handled, in the time that a
	// stop may take. The messages are still in the queue.
	ErrUnfinished = errors.New("the queue stopped before it had handled what was due")
	// ErrLossy is how Run refuses a queue whose messages are lost when the process ends.
	ErrLossy = errors.New("the in-process queue loses its messages when the process ends")

	errStopped = schema.WithKind(schema.Shutdown, errors.New("the queue stops and waits no longer"))
	errTimeout = errors.New("the attempt has used up its time")
	errGoexit  = errors.New("the handler has ended its goroutine")
)

func errRefused() error {
	return schema.WithKind(schema.Permanent,
		fmt.Errorf("%w: publish through publishers.NewOutbox and run a bridge, or set Config.AllowLoss if that is meant", ErrLossy))
}
