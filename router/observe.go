package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

var errGone = errors.New("the handler has ended its goroutine")

// observe tells the handler which run it is part of, and the hooks that it begins and ends. The first hook begins first
// and ends last, so that each may rely on those before it.
func (c *chain) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (out []*message.Message, err error) {
		r, outer := runOf(msg), msg.Context()
		r.callCtx = handlers.WithCall(outer, r.call(outer))
		ctx := r.callCtx
		r.seen = r.seen[:0]
		for _, h := range c.hooks {
			ctx = h.CallStart(ctx, c.log, r.env)
			r.seen = append(r.seen, ctx)
		}
		msg.SetContext(ctx)
		defer msg.SetContext(outer)
		start := time.Now()
		err = errGone
		defer func() {
			r.failure = err
			took := time.Since(start)
			for i, h := range slices.Backward(c.hooks) {
				h.CallEnd(r.seen[i], c.log, r.env, err, took)
			}
		}()
		return next(msg)
	}
}

// settled tells the hooks what has become of a message that its handler was called for.
func (c *chain) settled(r *run) {
	if !r.started || r.decision == nil {
		return
	}
	for i, h := range slices.Backward(c.hooks) {
		h.CallSettled(context.WithoutCancel(r.seen[i]), c.log, r.env, *r.decision)
	}
}

func (r *run) call(ctx context.Context) handlers.Call {
	deadline, _ := ctx.Deadline()
	return handlers.Call{
		Handler: r.inbox.Key.Handler, ID: r.env.ID, Key: r.inbox.Key.Key, Attempt: r.attempt(),
		MaxAttempts: r.retry.MaxAttempts, Replay: r.inbox.Replay, Tenant: r.env.Tenant, Actor: r.env.Actor,
		RequestID: r.env.RequestID, TraceParent: r.env.TraceParent, TraceState: r.env.TraceState, Deadline: deadline, Unit: r.unit,
	}
}

// treatment is how a message's attempts are spaced and how long each may take: as its job's type says, else as the
// handler's policy does.
func (c *chain) treatment(env schema.Envelope) (schema.RetryPolicy, time.Duration) {
	retry, timeout := c.policy.Retry, c.policy.Timeout
	typed, ok := c.handler.(interface {
		Spec(action string) (schema.JobSpec, bool)
	})
	if !ok || env.Kind != schema.KindJob {
		return retry, timeout
	}
	spec, ok := typed.Spec(env.Name)
	if !ok {
		return retry, timeout
	}
	if spec.Retry != (schema.RetryPolicy{}) {
		retry = spec.Retry
	}
	if spec.Timeout > 0 {
		timeout = spec.Timeout
	}
	return retry, timeout
}
