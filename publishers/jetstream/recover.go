package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// errCursorGone reports that the stream has no cursor any more, or an older one: database and stream must be compared
// again before anything is sent.
var errCursorGone = errors.New("the stream has lost the cursor")

// findOut learns what has become of the batches of a session that failed, and why it failed. Without an error the
// next session may start at once.
func (o *owner) findOut(ctx context.Context, failure error) error {
	if errors.Is(failure, schema.ErrLeaseLost) {
		o.settle(0, true)
		return errLost
	}
	if errors.Is(failure, errUnknown) {
		o.mu.Lock()
		o.limit.unanswered()
		o.mu.Unlock()
	}
	sent, err := o.resync(ctx)
	if err != nil {
		return err
	}
	var refusal *commitError
	if !errors.As(failure, &refusal) || sent > 0 {
		if sent > 0 && refusal != nil {
			return nil // it was stored after all
		}
		return failure
	}
	return o.refused(ctx, refusal)
}

// resync asks the cursor what is stored, if that is in doubt, and returns how many rows of the session that failed are.
// Until it has answered nothing may be written.
func (o *owner) resync(ctx context.Context) (sent int, err error) {
	if !o.doubt {
		o.settle(0, false)
		return 0, nil
	}
	c, err := readCursor(ctx, o.f.nc, o.stream, o.subject, o.f.cfg.AckTimeout)
	if o.m.faults.trustMemory && len(o.staged) > 0 {
		c.Cursor, err = o.m.next(o.staged[0].rows), nil
		c.Seq = max(c.Seq, o.m.seq)
	}
	switch {
	case err != nil:
		return 0, err
	case c.Seq < o.m.seq:
		o.settle(0, false)
		return 0, fmt.Errorf("%w: %s in stream %s", errCursorGone, o.subject, o.stream)
	case c.Owner != o.token:
		o.settle(0, true)
		return 0, errLost
	}
	if c.Seq == o.m.seq && o.unsure != nil {
		if c, err = o.closePart(ctx, c); err != nil {
			return 0, err
		}
	}
	sent = int(c.Total - o.m.cursor.Total)
	o.settle(sent, false)
	o.doubt, o.unsure = false, nil
	o.adopt(c)
	return sent, nil
}

// settle counts the rows of a session that failed: so many of them are stored, the others were lost to another owner
// or stay in the outbox.
func (o *owner) settle(sent int, lost bool) {
	rest := -sent
	for _, s := range o.staged {
		rest += len(s.rows)
	}
	o.staged = nil
	if lost {
		o.count(Tally{Sent: sent, Lost: rest})
	} else {
		o.count(Tally{Sent: sent, Retried: rest})
	}
}

// refused decides what to do about a batch that is not stored. Only what the server says of one row alone can be that
// row's fault.
func (o *owner) refused(ctx context.Context, refusal *commitError) error {
	n := len(refusal.rows)
	switch code := codeOf(refusal); code {
	case codeTooLarge, codeHeaderSize, codeIncomplete:
		// A message that the server does not take leaves a gap, so a longer batch only says that it is incomplete.
		switch {
		case n > 1:
			o.limit.refused(n)
			return nil
		case n == 1 && code != codeIncomplete:
			o.count(Tally{Claimed: 1})
			err := o.park(ctx, refusal.rows[0], refusal.err)
			if err != nil {
				o.count(Tally{Retried: 1})
			}
			return err
		}
	case codeFull:
		if n > 1 {
			o.limit.full(n)
			return nil
		}
	case codeBatchTooLarge:
		if n > 1 {
			o.limit.tooMany(n)
			return nil
		}
	}
	return refusal
}

// park sets a row aside that can never be sent: never because of the state of the stream, so a cursor alone must be
// taken right before.
func (o *owner) park(ctx context.Context, row schema.RowName, cause error) error {
	o.mu.Lock()
	c, expect := o.m.next(nil), o.m.seq
	o.doubt = true
	o.mu.Unlock()
	seq, err := o.writeCursor(ctx, c, expect)
	if err != nil {
		return &commitError{err: err}
	}
	o.mu.Lock()
	o.doubt = false
	o.m.stored(c, seq)
	o.limit.parked()
	o.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.f.cfg.StopTimeout)
	defer cancel()
	reason := parkReason(cause)
	err = o.f.store.Park(ctx, schema.ParkParams{ShardRef: o.ref, Owner: o.token, Name: row, Reason: reason})
	switch {
	case errors.Is(err, schema.ErrNotFound): // somebody has taken it out of the outbox
		o.count(Tally{Retried: 1})
		return nil
	case err != nil:
		return fmt.Errorf("park row: %w", err)
	}
	o.count(Tally{Parked: 1})
	o.log.WarnContext(ctx, "parked a row that cannot be sent", "seq", row.Seq, "id", row.ID.String(), "reason", reason)
	return nil
}

// parkReason is what `poison list` shows.
func parkReason(cause error) string {
	var refused *serverError
	if errors.As(cause, &refused) {
		cause = refused
		switch refused.Code {
		case codeTooLarge:
			cause = fmt.Errorf("too large: %w", cause)
		case codeHeaderSize:
			cause = fmt.Errorf("headers too large: %w", cause)
		}
	}
	return schema.OneLine(cause.Error())
}
