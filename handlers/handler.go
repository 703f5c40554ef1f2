package handlers

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Handler does what a message asks for. It must return soon after ctx ends, must be safe to call from several
// goroutines, and must be safe to call again with the same idempotency key. A panic is a failed attempt like any other,
// but only in the goroutine it is called in: one in a goroutine that it has started ends the process.
type Handler interface {
	Handle(ctx context.Context, env schema.Envelope) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, env schema.Envelope) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, env schema.Envelope) error { return f(ctx, env) }

// Permanent marks err: trying again is useless, the message goes to the poison queue at once. It returns nil for nil.
func Permanent(err error) error { return schema.WithKind(schema.Permanent, err) }

// RetryAfter marks err with the wait that the other side has asked for; it replaces the policy's wait. The failure
// still counts as an attempt. It returns nil for a nil err.
func RetryAfter(err error, wait time.Duration) error { return schema.RetryAfter(err, wait) }

// Snooze says that what the message needs is not there yet: it is tried again after wait, which costs no attempt and
// does not count against a [Breaker]. Whoever snoozes must know when to stop: nothing else ends it. It returns nil for a
// nil err.
func Snooze(err error, wait time.Duration) error { return schema.Snooze(err, wait) }

// Cancel says that nobody wants any more what the message asks for: it is done with, keeps err as its reason, and leaves
// no dead letter. It returns nil for a nil err.
func Cancel(err error) error { return schema.Cancel(err) }

// Gone says that whom the target calls wants no more messages, whatever they are, as a webhook's receiver does with 410.
// A target whose [Breaker] has DisableAfter set is disabled at once: the message waits with all others until an operator
// enables it, and loses no attempt. Without, Gone is [Permanent]. It returns nil for a nil err.
func Gone(err error) error { return schema.Gone(err) }
