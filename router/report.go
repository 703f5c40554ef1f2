package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// reportError says that the report of an outcome cannot be published, ever.
type reportError struct{ err error }

func (e *reportError) Error() string { return fmt.Sprintf("report the outcome: %v", e.err) }
func (e *reportError) Unwrap() error { return e.err }

// markDone marks the key as handled, in one transaction with the report of that if somebody has asked for one.
func (c *chain) markDone(ctx context.Context, r *run) error {
	if r.env.ReplyTo == nil {
		return c.inbox.Done(ctx, r.inbox)
	}
	err := c.inbox.Unit(ctx, func(u schema.Unit) error {
		if err := u.Done(ctx, r.inbox); err != nil {
			return err
		}
		return c.report(ctx, u, r, r.success())
	})
	c.reported(err)
	return err
}

// fail records a failure or a verdict. With a verdict it reports, too, in the same transaction.
func (c *chain) fail(ctx context.Context, r *run, f schema.Failure) (rec schema.InboxRecord, err error) {
	f.Attempts = r.record.Attempts
	if r.env.ReplyTo == nil || !f.Dead && !f.Cancelled {
		return c.inbox.Fail(ctx, r.inbox, f)
	}
	err = c.inbox.Unit(ctx, func(u schema.Unit) (err error) {
		if rec, err = u.Fail(ctx, r.inbox, f); err != nil {
			return err
		}
		return c.report(ctx, u, r, schema.Outcome{Cause: f.Cause, Reason: f.Reason})
	})
	c.reported(err)
	var impossible *reportError
	if errors.As(err, &impossible) { // the message has come to its end all the same
		c.log.Error("outcome not reported", append(r.fields(), "error", schema.Reason(err))...)
		return c.inbox.Fail(ctx, r.inbox, f)
	}
	return rec, err
}

// reportUnkeyed reports the end of a message that no inbox row stands for. Repeating it changes nothing: the report has
// a key.
func (c *chain) reportUnkeyed(r *run, o schema.Outcome) bool {
	if r.env.ReplyTo == nil {
		return true
	}
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	err := c.inbox.Unit(ctx, func(u schema.Unit) error { return c.report(ctx, u, r, o) })
	c.reported(err)
	var impossible *reportError
	switch {
	case errors.As(err, &impossible):
		c.log.Error("outcome not reported", append(r.fields(), "error", schema.Reason(err))...)
	case err != nil:
		c.stats.fault(fmt.Errorf("report the outcome: %w", err))
		return false
	}
	return true
}

// report puts the report of r's outcome into the outbox, if somebody has asked for it.
func (c *chain) report(ctx context.Context, u schema.Unit, r *run, o schema.Outcome) error {
	job, asked := r.env.Report(o)
	if !asked {
		return nil
	}
	job.Time = time.Now().UTC()
	_, err := u.Append(ctx, []schema.Envelope{job})
	if schema.KindOf(err) == schema.Permanent && !errors.Is(err, schema.ErrLeaseLost) {
		return schema.WithKind(schema.Permanent, &reportError{err})
	}
	if err != nil {
		return fmt.Errorf("report the outcome: %w", err)
	}
	return nil
}

// reported wakes the forwarder after a commit.
func (c *chain) reported(err error) {
	if err == nil && c.nudge != nil {
		c.nudge()
	}
}

// success is the outcome of a run whose handler has returned nil.
func (r *run) success() schema.Outcome {
	var result json.RawMessage
	if r.callCtx != nil {
		result = handlers.ReportOf(r.callCtx)
	}
	return schema.Outcome{OK: true, Result: result}
}
