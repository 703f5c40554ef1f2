package handlers

import (
	"context"
	"log/slog"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Hooks are called around each step of a message's way through a handler: for traces, metrics and logs. Each may be
// nil, must be quick and safe for concurrent use. A hook observes and changes nothing: a panic in it is logged and the
// message goes on.
type Hooks struct {
	// Start is called before each run of the handler. The handler and End get the context it returns; nil keeps the old.
	Start func(ctx context.Context, env schema.Envelope) context.Context
	// End is called when the handler has returned, with its error, a panic's included, and the time it took.
	End func(ctx context.Context, env schema.Envelope, err error, took time.Duration)
	// Settled is called when what becomes of the message has been carried out: a retry's wait is set, a dead letter
	// stored. A message that was settled without a run, such as a repeat of one that is done, is not reported.
	Settled func(ctx context.Context, env schema.Envelope, d Decision)
}

var verdictNames = [...]string{"ack", "retry", "dead", "release", "leave", "snooze", "cancel"}

// String returns the verdict's name, for logs and metrics.
func (v Verdict) String() string { return nameOf(verdictNames[:], v) }

// CallStart calls Start. It is, like the other Call methods, for those who run handlers.
func (h Hooks) CallStart(ctx context.Context, log *slog.Logger, env schema.Envelope) (next context.Context) {
	next = ctx
	if h.Start == nil {
		return next
	}
	defer contain(ctx, log, "start", env)
	if got := h.Start(ctx, env); got != nil {
		next = got
	}
	return next
}

// CallEnd calls End.
func (h Hooks) CallEnd(ctx context.Context, log *slog.Logger, env schema.Envelope, err error, took time.Duration) {
	if h.End == nil {
		return
	}
	defer contain(ctx, log, "end", env)
	h.End(ctx, env, err, took)
}

// CallSettled calls Settled.
func (h Hooks) CallSettled(ctx context.Context, log *slog.Logger, env schema.Envelope, d Decision) {
	if h.Settled == nil {
		return
	}
	defer contain(ctx, log, "settled", env)
	h.Settled(ctx, env, d)
}

func contain(ctx context.Context, log *slog.Logger, hook string, env schema.Envelope) {
	if v := recover(); v != nil {
		log.ErrorContext(ctx, "hook panicked", "hook", hook, "id", env.ID, "panic", v)
	}
}
