package router

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
)

var errGone = errors.New("the handler has ended its goroutine")

// observe tells the handler which run it is part of, and the hooks that it begins and ends.
func (c *chain) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (out []*message.Message, err error) {
		r, outer := runOf(msg), msg.Context()
		r.callCtx = handlers.WithCall(outer, r.call(outer))
		r.hooks = c.hooks.Start(r.callCtx, c.log, r.env)
		msg.SetContext(r.hooks.Context())
		defer msg.SetContext(outer)
		start := time.Now()
		err = errGone
		defer func() {
			r.failure = err
			r.hooks.End(err, time.Since(start))
		}()
		return next(msg)
	}
}

// settled tells the hooks what has become of a message that its handler was called for.
func (c *chain) settled(r *run) {
	if !r.started || r.decision == nil {
		return
	}
	r.hooks.Settled(*r.decision)
}

func (r *run) call(ctx context.Context) handlers.Call {
	call := handlers.CallOf(r.inbox.Key.Handler, r.env)
	call.Attempt, call.MaxAttempts, call.Unit = r.attempt(), r.retry.MaxAttempts, r.unit
	call.Deadline, _ = ctx.Deadline()
	return call
}
