package handlers

import (
	"context"
	"log/slog"
	"slices"
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

// A HookList calls several hooks as one. It is for those who run handlers. The first hook begins first and ends last, so
// that each may rely on those before it.
type HookList []Hooks

// Start calls every Start, each with the context of the one before it.
func (l HookList) Start(ctx context.Context, log *slog.Logger, env schema.Envelope) *HookRun {
	if len(l) == 0 {
		return &HookRun{last: ctx}
	}
	kept := env
	r := &HookRun{hooks: l, log: log, env: &kept, own: make([]context.Context, 0, len(l)), last: ctx}
	for _, h := range l {
		r.last = h.start(r.last, log, env)
		r.own = append(r.own, r.last)
	}
	return r
}

// A HookRun is one run of a handler as its hooks see it. It is not safe for concurrent use.
type HookRun struct {
	hooks HookList
	log   *slog.Logger
	env   *schema.Envelope
	own   []context.Context // what each Start returned
	last  context.Context
}

// Context returns the handler's context: what the last Start returned.
func (r *HookRun) Context() context.Context { return r.last }

// End calls every End, each with the context of its own Start.
func (r *HookRun) End(err error, took time.Duration) {
	for i, h := range slices.Backward(r.hooks) {
		if h.End != nil {
			contained(r.own[i], r.log, "end", *r.env, func() { h.End(r.own[i], *r.env, err, took) })
		}
	}
}

// Settled calls every Settled, each with the context of its own Start, which does not end with the run here.
func (r *HookRun) Settled(d Decision) {
	for i, h := range slices.Backward(r.hooks) {
		if h.Settled != nil {
			ctx := context.WithoutCancel(r.own[i])
			contained(ctx, r.log, "settled", *r.env, func() { h.Settled(ctx, *r.env, d) })
		}
	}
}

func (h Hooks) start(ctx context.Context, log *slog.Logger, env schema.Envelope) (next context.Context) {
	next = ctx
	if h.Start == nil {
		return next
	}
	contained(ctx, log, "start", env, func() {
		if got := h.Start(ctx, env); got != nil {
			next = got
		}
	})
	return next
}

// contained keeps a hook's panic from the message.
func contained(ctx context.Context, log *slog.Logger, hook string, env schema.Envelope, call func()) {
	defer func() {
		if v := recover(); v != nil {
			log.ErrorContext(ctx, "hook panicked", "hook", hook, "id", env.ID, "panic", v)
		}
	}()
	call()
}
