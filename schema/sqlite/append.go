package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Append writes envs into the outbox in the caller's transaction and answers for each. Nothing is written when one of
// them is invalid or has an idempotency key that was used with other content; the error joins the faults of all. No
// envelopes are no work.
//
// The transaction may be of a connection of the caller's own to the same file, and deferred: Append writes before it
// reads, so that it waits for its turn where a reader would be refused.
func (s *Store) Append(ctx context.Context, tx *sql.Tx, envs []schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	limit, err := s.limit.get(ctx, tx, limitLocking, s.opts.Now())
	if err != nil {
		return nil, wrap("read payload limit", err)
	}
	now := s.opts.Now()
	envs = withTime(envs, now)
	if err := validate(envs, limit); err != nil {
		return nil, err
	}
	var receipts []schema.Receipt
	err = savepoint(ctx, tx, func() error {
		var err error
		if receipts, err = s.takeKeys(ctx, tx, envs, now.UnixNano()); err != nil {
			return err
		}
		return insert(ctx, tx, envs, receipts, now)
	})
	if err != nil {
		return nil, wrap("append to outbox", err)
	}
	return receipts, nil
}

// withTime fills in the time of publishing where none is given.
func withTime(envs []schema.Envelope, now time.Time) []schema.Envelope {
	timed := make([]schema.Envelope, len(envs))
	for i, e := range envs {
		if e.Time.IsZero() {
			e.Time = now.UTC()
		}
		timed[i] = e
	}
	return timed
}

func validate(envs []schema.Envelope, limit int) error {
	var faults []error
	for _, e := range envs {
		if err := e.Validate(limit); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// insert writes the envelopes that are not answered by an earlier message: those that are due into the outbox, the
// others into scheduled.
func insert(ctx context.Context, tx *sql.Tx, envs []schema.Envelope, receipts []schema.Receipt, now time.Time) error {
	due := make([]schema.Row, 0, len(envs))
	var later []schema.Row
	var when []int64
	for i, e := range envs {
		at := e.DueAt
		if e.Delay > 0 {
			at = now.Add(e.Delay)
		}
		switch {
		case receipts[i].Existing:
		case at.After(now):
			later, when = append(later, schema.NewRow(e)), append(when, at.UnixNano())
		default:
			due = append(due, schema.NewRow(e))
		}
	}
	if err := insertRows(ctx, tx, "millbridge_outbox", due, now.UnixNano(), "", nil); err != nil {
		return err
	}
	return insertRows(ctx, tx, "millbridge_scheduled", later, now.UnixNano(), "due_at", func(i int) any { return when[i] })
}

// savepoint runs f so that nothing of it stays when it fails, even if the caller commits the transaction all the same.
func savepoint(ctx context.Context, tx *sql.Tx, f func() error) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT millbridge"); err != nil {
		return err
	}
	err := f()
	end := "RELEASE millbridge"
	if err != nil {
		end = "ROLLBACK TO millbridge; RELEASE millbridge"
	}
	_, endErr := tx.ExecContext(context.WithoutCancel(ctx), end)
	if err != nil {
		return err // a failed rollback leaves a transaction that cannot be committed
	}
	return endErr
}
