package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// timeout gives each attempt the whole time that it may take.
func (c *chain) timeout(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outer, limit := msg.Context(), runOf(msg).timeout
		ctx := &lazyContext{parent: outer, deadline: time.Now().Add(limit), cause: errTimeout}
		defer ctx.cancel(nil)
		msg.SetContext(ctx)
		defer msg.SetContext(outer)
		out, err := next(msg)
		if err != nil && ctx.Err() != nil && context.Cause(ctx) == errTimeout {
			err = fmt.Errorf("no result within %v: %w", limit, err)
		}
		return out, err
	}
}

// recover turns a panic into an error.
func (c *chain) recover(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		return nil, handlers.Recover(func() error {
			_, err := next(msg)
			return err
		})
	}
}

// idempotency lets a run start only if its key is not handled, given up or in other hands, and marks the key as handled
// when the handler succeeds.
func (c *chain) idempotency(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		r := runOf(msg)
		if err := c.refuseReport(r); err != nil {
			return nil, err
		}
		switch {
		case c.policy.Mode == handlers.ModeTx:
			return nil, c.inTransaction(msg, r, next)
		case r.unasked:
			return nil, c.unguarded(msg, r, next)
		}
		return nil, c.underLease(msg, r, next)
	}
}

// unguarded runs the handler without asking the inbox, which hears of the key only if the handler fails.
func (c *chain) unguarded(msg *message.Message, r *run, next message.HandlerFunc) error {
	_, failure := next(msg)
	if failure == nil {
		return nil
	}
	r.identify()
	for pause := c.firstPause; r.ctx.Err() == nil; pause = min(2*pause, maxPause) {
		asked := c.runs.now()
		ctx, cancel := storeContext(r.ctx)
		res, err := c.inbox.Claim(ctx, r.inbox)
		cancel()
		if err == nil {
			if r.claimed = res.Claim == schema.ClaimRun; r.claimed {
				c.runs.keep(r, asked)
			}
			if err := c.answer(r, res); err != nil {
				return err
			}
			return failure
		}
		c.stats.fault(fmt.Errorf("claim: %w", err))
		if schema.KindOf(err) == schema.Permanent || pause == maxPause && !passes(err) || !c.runs.pause(r, pause) {
			break
		}
	}
	return failure
}

func (c *chain) underLease(msg *message.Message, r *run, next message.HandlerFunc) error {
	asked := c.runs.now()
	ctx, cancel := storeContext(msg.Context())
	res, err := c.inbox.Claim(ctx, r.inbox)
	cancel()
	if err != nil {
		return &storeError{err}
	}
	r.claimed = res.Claim == schema.ClaimRun
	if r.claimed {
		c.runs.keep(r, asked)
	}
	if err := c.answer(r, res); err != nil {
		return err
	}
	if _, err := next(msg); err != nil {
		return err
	}
	return c.done(r)
}

// done marks the key as handled. While the database is away it tries again, also when the lease may have ended by then:
// if nobody has taken over, the database still knows the run, and to give up would have the handler called again. An
// error that need not pass is tried again for some seconds only: it would hold the handler's slot for ever.
func (c *chain) done(r *run) error {
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := storeContext(r.ctx)
		killpoint.At(killpoint.BeforeInbox)
		err := c.markDone(ctx, r)
		cancel()
		if err == nil {
			killpoint.At(killpoint.AfterInbox)
			r.claimed = false
			return nil
		}
		var impossible *reportError
		switch {
		case errors.Is(err, schema.ErrLeaseLost):
			return errLeaseLost
		case errors.As(err, &impossible):
			return err
		case schema.KindOf(err) == schema.Permanent, pause == maxPause && !passes(err):
			return fmt.Errorf("mark as done: %w", schema.WithKind(schema.Temporary, err))
		}
		c.stats.fault(fmt.Errorf("mark as done: %w", err))
		if c.runs.pause(r, pause) {
			continue
		}
		cause := context.Cause(r.ctx)
		if cause != errLeaseLost || !errors.Is(err, schema.ErrUnavailable) || !c.runs.pauseLeaseless(pause) {
			return cause
		}
	}
}

// passes reports whether an error of the inbox is one that ends by itself.
func passes(err error) bool {
	return errors.Is(err, schema.ErrUnavailable) || errors.Is(err, schema.ErrRetryTransaction) || errors.Is(err, context.DeadlineExceeded)
}

// inTransaction runs the handler inside the transaction that marks its key as handled.
func (c *chain) inTransaction(msg *message.Message, r *run, next message.HandlerFunc) error {
	ctx, giveUp := context.WithCancelCause(msg.Context())
	defer giveUp(nil)
	// The handler's time is not for waiting for a database that is silent.
	patience := time.AfterFunc(storeTimeout, func() { giveUp(schema.ErrNoAnswer) })
	defer patience.Stop()
	asked := false
	err := c.inbox.Unit(ctx, func(u schema.Unit) error {
		asked = true
		res, err := u.Claim(ctx, r.inbox)
		if err == nil && !patience.Stop() || context.Cause(ctx) == schema.ErrNoAnswer {
			err = schema.ErrNoAnswer
		}
		if err != nil { // most likely the transaction has not begun
			return &storeError{err}
		}
		if err := c.answer(r, res); err != nil {
			return err
		}
		r.unit = u
		defer func() { r.unit = nil }()
		if _, err = next(msg); err == nil {
			err = c.report(ctx, u, r, r.success())
			killpoint.At(killpoint.BeforeInbox)
		}
		r.late = ctx.Err() != nil
		return err
	})
	if err != nil && r.late && context.Cause(msg.Context()) == errTimeout {
		if outage := c.outage(msg.Context()); outage != nil { // which the handler has spent its time waiting for
			r.late, err = false, schema.WithKind(schema.Temporary, fmt.Errorf("%w: %w", outage, err))
		}
	}
	switch {
	case err == nil:
		killpoint.At(killpoint.AfterInbox)
		if r.env.ReplyTo != nil {
			c.reported(nil)
		}
	case !asked: // the transaction did not begin
		return &storeError{err}
	case errors.Is(err, schema.ErrLeaseLost): // another run has the key, and nothing of this one has committed
		return errLeaseLost
	}
	return err
}

// outage returns what keeps the database from answering right now, nil if it answers. That SQLite's only writer is at work
// is none: another handler may have it.
func (c *chain) outage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	err := c.inbox.Unit(ctx, func(schema.Unit) error { return nil })
	if !errors.Is(err, schema.ErrUnavailable) || errors.Is(err, schema.ErrBusy) {
		return nil
	}
	return err
}

// answer turns the inbox's answer into nil, if the run may start, or into what settle has to do.
func (c *chain) answer(r *run, res schema.ClaimResult) error {
	r.record = res.Record
	switch res.Claim {
	case schema.ClaimDone:
		return errHandled
	case schema.ClaimSuperseded:
		return errSuperseded
	case schema.ClaimBusy:
		return &busyError{res.Wait}
	case schema.ClaimDead:
		return &diedError{res.Record}
	case schema.ClaimReused:
		return &verdictError{schema.CauseKeyReused, fmt.Sprintf("%v: message %s used the key first", schema.ErrKeyReused, res.Record.MessageID)}
	}
	if n := r.fruitless(); n >= uint64(max(c.policy.MaxCrashes-1, 1)) && !r.onTrial { // what is left is for its trial
		return &verdictError{schema.CauseCrashing, fmt.Sprintf("crashing: %d deliveries in a row ended without a result", n)}
	}
	return nil
}
