package router

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/schema"
)

// trialMark is noted as the deliveries of a message whose run is on trial. No broker counts so far.
const trialMark = 1 << 62

// trial keeps messages from being given up for crashes that are not theirs. A process has more messages in hand than run,
// and when it dies all of them count a delivery without a result, also those that were never handed to a handler. So the
// count only makes a message suspect: it runs once more, with a mark in the inbox and no other suspect beside it. If it
// comes back with the mark, it was running when the process died.
func (c *chain) trial(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := next(msg)
		if err == nil {
			return nil, nil
		}
		r := runOf(msg)
		var verdict *verdictError
		if !errors.As(err, &verdict) || verdict.cause != schema.CauseCrashing || r.record.Deliveries == trialMark {
			return nil, err
		}
		if !c.take(c.trials) {
			c.release(r)
			return nil, &storeError{errStopped}
		}
		defer func() { <-c.trials }()
		if err := c.mark(r, verdict.reason+"; it is on trial now", trialMark); err != nil {
			return nil, err
		}
		r.onTrial = true
		defer func() { r.onTrial = false }()
		if _, err = next(msg); err != nil && r.ctx.Err() != nil { // stopped by us: it has not crashed
			if failed := c.mark(r, "stopped", r.delivery.Delivered); failed != nil {
				c.log.Warn("could not end the trial", append(r.fields(), "error", schema.Reason(failed))...)
			}
		}
		return nil, err
	}
}

// mark notes how many deliveries count as having a result.
func (c *chain) mark(r *run, reason string, deliveries uint64) error {
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	_, err := c.inbox.Fail(ctx, r.inbox, schema.Failure{Reason: reason, Deliveries: deliveries})
	switch {
	case err == nil:
		r.claimed = false
		return nil
	case errors.Is(err, schema.ErrLeaseLost):
		return errLeaseLost
	}
	return &storeError{fmt.Errorf("begin a trial: %w", err)}
}
