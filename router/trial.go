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
// comes back with the mark, it was running when the process died: a run that ends in any other way takes its mark back, see
// acquit.
func (c *chain) trial(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := next(msg)
		if err == nil {
			return nil, nil
		}
		r := runOf(msg)
		var verdict *verdictError
		there := r.record.Deliveries == trialMark
		if !errors.As(err, &verdict) || verdict.cause != schema.CauseCrashing || there && r.unmark == nil {
			return nil, err
		}
		if !c.take(c.trials) {
			c.release(r)
			return nil, &storeError{errStopped}
		}
		defer func() { <-c.trials }()
		if !there { // else it is this run's own: the database has kept it from its handler
			if err := c.mark(r, verdict.reason+"; it is on trial now"); err != nil {
				return nil, err
			}
		}
		r.onTrial = true
		defer func() { r.onTrial = false }()
		_, err = next(msg)
		return nil, err
	}
}

// mark notes that r is on trial.
func (c *chain) mark(r *run, why string) error {
	r.unmark = &schema.Failure{Reason: r.record.LastError, Deliveries: r.without()} // also if the answer is lost
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	err := c.count(ctx, r, trialMark, why)
	switch {
	case err == nil:
		r.claimed = false
		return nil
	case errors.Is(err, schema.ErrLeaseLost):
		return errLeaseLost
	}
	return &storeError{fmt.Errorf("begin a trial: %w", err)}
}

// acquit takes the mark of r's trial back if nothing else has been recorded since: the process has not died of it, be it
// that the handler was stopped or that it was not called. While the database is away it tries until the run has to end.
func (c *chain) acquit(r *run) {
	if r.unmark == nil {
		return
	}
	_, err := c.record(r, *r.unmark)
	if err != nil && !errors.Is(err, schema.ErrLeaseLost) { // else whoever has the key now has the mark, too
		c.log.Warn("could not end the trial", append(r.fields(), "error", schema.Reason(err))...)
	}
}
