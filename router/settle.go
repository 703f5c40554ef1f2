package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

func (c *chain) process(msg *message.Message, d *subscribers.Delivery, next message.HandlerFunc) outcome {
	ctx, cancel := context.WithCancelCause(msg.Context())
	defer cancel(nil)
	r, err := c.newRun(d)
	if err != nil {
		return c.buryForeign(ctx, r, err)
	}
	r.ctx, r.cancel = ctx, cancel
	if !c.runs.begin(r) {
		return later(0)
	}
	defer c.runs.end(r)
	msg.SetContext(context.WithValue(ctx, runKey{}, r))
	if !c.take(c.slots) {
		return later(0)
	}
	defer func() { <-c.slots }()
	if c.units != nil {
		if !c.take(c.units) {
			return later(0)
		}
		defer func() { <-c.units }()
	}
	if wait := c.pace.turn(c.runs.now()); wait > 0 && !c.runs.pauseUnlessStopping(r, wait) {
		return later(0)
	}
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		_, err = next(msg)
		if c.cut(r, msg.Context(), err) {
			err = &storeError{err}
			r.started = false
		}
		var down *storeError
		if !errors.As(err, &down) || r.started {
			return c.conclude(r, err)
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

// cut reports whether the database is to blame for the end of a run whose transaction is lost: it leaves no trace, and
// is made again as if it had not been. A handler that brings the database down each time must come to an end, so there is
// a limit to it.
func (c *chain) cut(r *run, ctx context.Context, err error) bool {
	if c.policy.Mode != handlers.ModeTx || !r.started || r.late || ctx.Err() != nil ||
		!errors.Is(err, schema.ErrUnavailable) || schema.KindOf(err) != schema.Temporary {
		return false
	}
	r.cuts++
	limit := c.policy.MaxCrashes
	if errors.Is(err, schema.ErrBusy) { // somebody else has SQLite's only writer: most likely it has not even begun
		limit *= 10
	}
	return r.cuts < limit
}

// take waits for a place, before the attempt's time begins to run; false if no run should begin any more.
func (c *chain) take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-c.runs.stopping:
		return false
	}
}

// conclude carries out what the end of a run asks for.
func (c *chain) conclude(r *run, err error) outcome {
	var busy *busyError
	var died *diedError
	var verdict *verdictError
	switch {
	case err == nil:
		c.stats.handled()
		c.log.Debug("handled", r.fields()...)
		return acked
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
		letter := r.letter(c.name) // the inbox knows the key for another message: nothing is recorded
		letter.Cause, letter.Reason = verdict.cause, verdict.reason
		return c.buryUnkeyed(r.ctx, letter, r.inbox)
	case errors.As(err, &verdict):
		return c.giveUp(r, verdict.cause, verdict.reason, err)
	}
	err = r.judge(err)
	switch d := handlers.Decide(c.policy.Retry, r.attempt(), r.inbox.MessageID, err); d.Verdict {
	case handlers.Retry:
		return c.retry(r, d.Wait, err)
	case handlers.Dead:
		return c.giveUp(r, d.Cause, schema.Reason(err), err)
	case handlers.Release:
		return c.release(r)
	default: // Leave
		c.log.Warn("left to another run", append(r.fields(), "error", schema.Reason(err))...)
		return later(c.lease)
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

func (c *chain) retry(r *run, wait time.Duration, err error) outcome {
	reason := schema.Reason(err)
	killpoint.At(killpoint.BeforeFailure)
	rec, ferr := c.record(r, schema.Failure{Reason: reason, Attempted: r.started, Deliveries: r.delivery.Delivered, RetryIn: wait})
	killpoint.At(killpoint.AfterFailure)
	if ferr != nil {
		return c.unrecorded(r, ferr)
	}
	c.stats.retried()
	c.log.Info("attempt failed", append(r.fields(), "attempt", rec.Attempts, "delay", wait, "error", reason)...)
	return later(wait)
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
	return c.bury(r.ctx, letter)
}

// record writes a failure down. While the database is away it tries again: an attempt that nobody counts is one too
// many later.
func (c *chain) record(r *run, f schema.Failure) (schema.InboxRecord, error) {
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := storeContext(r.ctx)
		rec, err := c.inbox.Fail(ctx, r.inbox, f)
		cancel()
		if err == nil || errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) == schema.Permanent {
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
	if errors.Is(err, schema.ErrLeaseLost) {
		c.log.Warn("left to another run", r.fields()...)
		return later(c.lease)
	}
	c.stats.fault(fmt.Errorf("record a failure: %w", err))
	return later(maxPause)
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

func (c *chain) buryForeign(ctx context.Context, r *run, err error) outcome {
	letter := r.letter(c.name)
	letter.ID, letter.Replay = fmt.Sprintf("seq-%d", r.delivery.Sequence), 0
	letter.Cause, letter.Reason = schema.CauseUndecodable, schema.Reason(err)
	id, _ := schema.WatermillHeader(r.delivery.Header)
	return c.buryUnkeyed(ctx, letter, schema.Run{Key: schema.InboxKey{Handler: c.name}, MessageID: cmp.Or(id, letter.ID), Sequence: c.accountable(r)})
}

// buryUnkeyed buries a message that no inbox row stands for.
func (c *chain) buryUnkeyed(ctx context.Context, letter schema.DeadLetter, run schema.Run) outcome {
	if !c.noteSettled(ctx, run) {
		return later(maxPause)
	}
	return c.bury(ctx, letter)
}

// noteSettled leaves a trace of a message of our outbox that is about to be acked and that no inbox row stands for.
func (c *chain) noteSettled(ctx context.Context, run schema.Run) bool {
	if run.Sequence == 0 {
		return true
	}
	ctx, cancel := storeContext(ctx)
	defer cancel()
	err := c.inbox.Settled(ctx, run)
	if err != nil {
		c.stats.fault(fmt.Errorf("note message as settled: %w", err))
	}
	return err == nil
}

// bury keeps the message as a dead letter and then lets go of the original. If the letter cannot be written the
// original stays.
func (c *chain) bury(ctx context.Context, letter schema.DeadLetter) outcome {
	letter.Time = time.Now()
	letter.Reason = schema.OneLine(letter.Reason)
	ctx, cancel := storeContext(ctx)
	defer cancel()
	killpoint.At(killpoint.BeforeLetter)
	if err := c.letters.Write(ctx, letter); err != nil {
		c.stats.fault(fmt.Errorf("write dead letter %s: %w", letter.ID, err))
		c.log.Error("dead letter not written, the message stays", "target", c.name, "id", letter.ID, "error", schema.Reason(err))
		return later(growing(letter.Deliveries, time.Minute))
	}
	killpoint.At(killpoint.AfterLetter)
	c.stats.died()
	c.log.Warn("message given up", "target", c.name, "id", letter.ID, "replay", letter.Replay, "cause", letter.Cause,
		"attempts", letter.Attempts, "error", letter.Reason)
	return acked
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
