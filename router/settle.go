package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// outcome is what the broker hears: an ack, or the wait until it hands the message out again.
type outcome struct {
	ack  bool
	wait time.Duration
}

var acked = outcome{ack: true}

func later(wait time.Duration) outcome { return outcome{wait: wait} }

// settle decides what becomes of each message and tells the broker. It always returns nil: the router would log every
// ordinary retry as an error.
func (c *chain) settle(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		deepen(0)
		d, ok := subscribers.DeliveryFrom(msg.Context())
		if !ok {
			return nil, errNotDelivered
		}
		out := later(firstPause) // of a handler that ends its goroutine, which nothing can catch
		defer func() {
			if !out.ack {
				d.RetryIn(out.wait)
				msg.Nack()
			}
		}()
		c.stats.began()
		defer c.stats.ended()
		out = c.process(msg, d, next)
		return nil, nil
	}
}

// deepen makes the stack of a goroutine that has just begun as deep as the chain needs it, at once: it would be copied
// several times on the way there, each time with more on it.
//
//go:noinline
func deepen(i int) byte {
	var room [12 << 10]byte
	return room[i]
}

func (c *chain) process(msg *message.Message, d *subscribers.Delivery, next message.HandlerFunc) outcome {
	r, err := c.newRun(d)
	if err != nil {
		return c.buryForeign(msg.Context(), r, err)
	}
	ctx := &lazyContext{parent: msg.Context(), key: runKey{}, val: r}
	defer ctx.cancel(nil)
	r.ctx, r.cancel = ctx, ctx.cancel
	if !c.runs.begin(r) {
		return later(0)
	}
	defer c.runs.end(r)
	msg.SetContext(ctx)
	leave, ok := c.admit(r)
	if !ok {
		c.unbegun(r)
		return later(0)
	}
	defer leave()
	defer c.breaker.giveBack(r) // by what did not come to its handler
	out := c.carryOut(msg, r, next)
	c.acquit(r) // not if the handler has ended its goroutine
	return out
}

// carryOut runs the handler, again as long as the database keeps it from its end, and does what follows from that.
func (c *chain) carryOut(msg *message.Message, r *run, next message.HandlerFunc) outcome {
	var err error
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		if _, err = next(msg); err == nil {
			out := c.succeeded(r)
			c.settled(r)
			return out
		}
		if c.cut(r, msg.Context(), err) {
			err = &storeError{err}
			r.started = false
		}
		var down *storeError
		if !errors.As(err, &down) || r.started {
			out := c.conclude(r, err)
			c.settled(r)
			return out
		}
		// The message is kept here until the inbox answers. Giving it back would only raise its delivery count.
		c.stats.fault(err)
		if schema.KindOf(down.err) == schema.Permanent {
			return later(maxPause)
		}
		if !c.runs.pauseUnlessStopping(r, pause) {
			return later(0)
		}
	}
}

// unbegun is for a message that has not come to its handler, be it that a stop keeps it or that it waits for its target.
// The broker counts its delivery, and the inbox knows of no result: many restarts while the target is down would make the
// message look as if it killed the process. For ordered targets the count is no proof of that, see trial.
func (c *chain) unbegun(r *run) {
	if r.noted || c.policy.Ordered || r.delivery.Delivered+1 < uint64(c.policy.MaxCrashes) {
		return
	}
	if r.unasked { // it will not be new to the inbox any more
		r.unasked = false
		r.identify()
	}
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	res, err := c.inbox.Claim(ctx, r.inbox)
	if err == nil && res.Claim != schema.ClaimRun {
		return
	}
	if err == nil {
		r.record, r.noted = res.Record, true
		err = c.count(ctx, r, r.without(), "stopped before it began")
	}
	if err != nil {
		c.log.Warn("could not note a message that has not begun", append(r.fields(), "error", schema.Reason(err))...)
	}
}

// begun takes back what unbegun has noted: the process may die of r now.
func (c *chain) begun(r *run) {
	if !r.noted {
		return
	}
	r.noted = false
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	if err := c.count(ctx, r, r.record.Deliveries, r.record.LastError); err != nil {
		c.log.Warn("could not note that a message begins", append(r.fields(), "error", schema.Reason(err))...)
	}
}

// count notes how many deliveries of r's message count as having a result.
func (c *chain) count(ctx context.Context, r *run, deliveries uint64, why string) error {
	_, err := c.fail(ctx, r, schema.Failure{Reason: why, Deliveries: deliveries})
	return err
}

// cut reports whether the database is to blame for the end of a run whose transaction is lost: it leaves no trace, and
// is made again as if it had not been. A handler that brings the database down each time must come to an end, so there is
// a limit to it, unless the database itself says that nobody can write: that may last, and is no handler's doing.
func (c *chain) cut(r *run, ctx context.Context, err error) bool {
	// Who has waited for SQLite's only writer all the time has not had the time.
	late := r.late && !errors.Is(err, schema.ErrBusy)
	if c.policy.Mode != handlers.ModeTx || !r.started || late || ctx.Err() != nil ||
		!errors.Is(err, schema.ErrUnavailable) || schema.KindOf(err) != schema.Temporary {
		return false
	}
	if errors.Is(err, schema.ErrNoSpace) || errors.Is(err, schema.ErrReadOnly) || errors.Is(err, schema.ErrIO) {
		return true
	}
	r.cuts++
	limit := c.policy.MaxCrashes
	if errors.Is(err, schema.ErrBusy) { // somebody else has SQLite's only writer: most likely it has not even begun
		limit *= 10
	}
	return r.cuts < limit
}

var wasHandled = handlers.Decision{Verdict: handlers.Ack}

// succeeded is the end of a run that has handled its message.
func (c *chain) succeeded(r *run) outcome {
	r.unmark = nil
	c.stats.handled()
	if c.log.Enabled(r.ctx, slog.LevelDebug) {
		c.log.Debug("handled", r.fields()...)
	}
	r.decision = &wasHandled
	c.noteCircuit(r, nil, *r.decision)
	return acked
}

// conclude carries out what the end of a run asks for that has not.
func (c *chain) conclude(r *run, err error) outcome {
	var busy *busyError
	var died *diedError
	var verdict *verdictError
	switch {
	case errors.Is(err, errHandled), errors.Is(err, errSuperseded):
		if r.record.Sequence != r.inbox.Sequence && !c.noteSettled(r.ctx, r.inbox) {
			return later(maxPause)
		}
		c.log.Debug("acked unhandled", append(r.fields(), "why", err.Error())...)
		return acked
	case errors.As(err, &busy):
		return later(busyWait(busy.wait, r.fruitless()))
	case errors.As(err, &died):
		letter := r.letter(c.name)
		letter.Cause, letter.Reason, letter.Attempts = died.record.Cause, died.record.LastError, died.record.Attempts
		return c.bury(r.ctx, letter)
	case errors.As(err, &verdict) && verdict.cause == schema.CauseKeyReused:
		// The inbox knows the key for another message: nothing is recorded.
		if !c.reportUnkeyed(r, schema.Outcome{Cause: verdict.cause, Reason: verdict.reason}) {
			return later(maxPause)
		}
		letter := r.letter(c.name)
		letter.Cause, letter.Reason = verdict.cause, verdict.reason
		return c.buryUnkeyed(r.ctx, letter, r.inbox)
	case errors.As(err, &verdict):
		return c.giveUp(r, verdict.cause, verdict.reason, err)
	}
	err = r.judge(err)
	if schema.IsGone(err) && c.breaker.gone(r, err) {
		err = handlers.Snooze(err, maxPause) // it comes back, and waits for the target to be enabled
	}
	d := handlers.Decide(r.retry, r.attempt(), r.inbox.MessageID, err)
	c.noteCircuit(r, err, d)
	var out outcome
	switch d.Verdict {
	case handlers.Retry, handlers.Snoozed:
		out = c.retry(r, d, err)
	case handlers.Dead:
		out = c.giveUp(r, d.Cause, schema.Reason(err), err)
	case handlers.Cancelled:
		out = c.cancel(r, err)
	case handlers.Release:
		out = c.release(r)
	default:
		out = c.leave(r, err)
	}
	if !r.unsettled {
		r.decision = &d
	}
	return out
}

// noteCircuit tells the breaker how the handler has done.
func (c *chain) noteCircuit(r *run, err error, d handlers.Decision) {
	if err := c.breaker.note(r, err, d); err != nil {
		c.log.Warn("circuit not updated", append(r.fields(), "error", schema.Reason(err))...)
	}
}

// judge gives err the kind that counts: only we know whether we stopped the run or lost its lease, whatever the
// handler says.
func (r *run) judge(err error) error {
	cause := context.Cause(r.ctx)
	switch {
	case errors.Is(cause, errLeaseLost), errors.Is(err, errLeaseLost):
		return schema.WithKind(schema.NotMine, err)
	case cause != nil:
		return schema.WithKind(schema.Shutdown, err)
	}
	if k := schema.KindOf(err); k == schema.Shutdown || k == schema.NotMine {
		return schema.WithKind(schema.Temporary, err)
	}
	return err
}

func (c *chain) retry(r *run, d handlers.Decision, err error) outcome {
	wait, reason, failed := d.Wait, schema.Reason(err), d.Verdict == handlers.Retry
	killpoint.At(killpoint.BeforeFailure)
	rec, ferr := c.record(r, schema.Failure{Reason: reason, Attempted: r.started && failed, Deliveries: r.delivery.Delivered, RetryIn: wait})
	killpoint.At(killpoint.AfterFailure)
	if ferr != nil {
		return c.unrecorded(r, ferr)
	}
	if failed {
		c.stats.retried()
		c.log.Info("attempt failed", append(r.fields(), "attempt", rec.Attempts, "delay", wait, "error", reason)...)
	} else {
		c.stats.snoozed()
		c.log.Info("not ready yet", append(r.fields(), "delay", wait, "why", reason)...)
	}
	return later(wait)
}

// cancel records that nobody wants the message done any more: its key is done, and there is no letter.
func (c *chain) cancel(r *run, err error) outcome {
	reason := schema.Reason(err)
	killpoint.At(killpoint.BeforeVerdict)
	_, ferr := c.record(r, schema.Failure{
		Reason: reason, Attempted: r.started, Deliveries: r.delivery.Delivered, Cancelled: true, Cause: schema.CauseCancelled,
	})
	killpoint.At(killpoint.AfterVerdict)
	if ferr != nil {
		return c.unrecorded(r, ferr)
	}
	c.stats.cancelled()
	c.log.Info("cancelled", append(r.fields(), "why", reason)...)
	return acked
}

// giveUp records the verdict first, so that nobody tries again, and then keeps the message as a dead letter.
func (c *chain) giveUp(r *run, cause schema.Cause, reason string, err error) outcome {
	killpoint.At(killpoint.BeforeVerdict)
	rec, ferr := c.record(r, schema.Failure{Reason: reason, Attempted: r.started, Deliveries: r.delivery.Delivered, Dead: true, Cause: cause})
	killpoint.At(killpoint.AfterVerdict)
	if ferr != nil {
		return c.unrecorded(r, ferr)
	}
	letter := r.letter(c.name)
	letter.Cause, letter.Reason, letter.Attempts = cause, reason, rec.Attempts
	var panicked *handlers.PanicError
	if errors.As(err, &panicked) {
		letter.Stack = string(panicked.Stack)
	}
	out := c.bury(r.ctx, letter)
	r.unsettled = !out.ack
	return out
}

// record writes a failure down. While the database is away it tries again: an attempt that nobody counts is one too
// many later. An error that need not pass is tried again for some seconds only.
func (c *chain) record(r *run, f schema.Failure) (schema.InboxRecord, error) {
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := storeContext(r.ctx)
		rec, err := c.fail(ctx, r, f)
		cancel()
		if err == nil {
			r.unmark = nil
		}
		if err == nil || errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) == schema.Permanent || pause == maxPause && !passes(err) {
			r.claimed = false
			return rec, err
		}
		c.stats.fault(fmt.Errorf("record a failure: %w", err))
		if !c.runs.pause(r, pause) {
			return rec, err
		}
	}
}

func (c *chain) unrecorded(r *run, err error) outcome {
	r.unsettled = true
	if errors.Is(err, schema.ErrLeaseLost) {
		return c.leave(r, err)
	}
	c.stats.fault(fmt.Errorf("record a failure: %w", err))
	return later(maxPause)
}

// leave has the server wait until the run that holds the key is over.
func (c *chain) leave(r *run, err error) outcome {
	c.log.Warn("left to another run", append(r.fields(), "error", schema.Reason(err))...)
	return later(c.lease)
}

// release gives a message back that was stopped by us. It costs no attempt and leaves no mark.
func (c *chain) release(r *run) outcome {
	if r.claimed {
		ctx, cancel := storeContext(r.ctx)
		defer cancel()
		if err := c.inbox.Free(ctx, r.inbox); err != nil { // the lease ends by itself
			c.log.Warn("could not free the key", append(r.fields(), "error", schema.Reason(err))...)
		}
	}
	return later(0)
}

// busyWait is until the key may be free.
func busyWait(wait time.Duration, deliveries uint64) time.Duration {
	if wait > 0 {
		return wait
	}
	return growing(deliveries+1, 30*time.Second)
}

// growing doubles from a second with each delivery.
func growing(deliveries uint64, most time.Duration) time.Duration {
	return min(time.Second<<min(deliveries-min(deliveries, 1), 12), most)
}
