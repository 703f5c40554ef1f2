package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Append puts envelopes into the outbox in the caller's transaction and answers for each with a receipt. Those with a
// time to wait for go to the scheduled messages. Either all of them are written or none. The error lists the faults of
// all envelopes; see [schema.ValidationError], [schema.ErrKeyReused] and [schema.ErrRetryTransaction]. No envelopes are
// no work.
func (s *Store) Append(ctx context.Context, tx pgx.Tx, envs []schema.Envelope) ([]schema.Receipt, error) {
	return s.append(ctx, pgxRunner{tx}, envs)
}

func (s *Store) append(ctx context.Context, r runner, envs []schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	limit, err := s.maxPayload(ctx, r)
	if err != nil {
		return nil, err
	}
	a, err := newAppending(envs, limit)
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx, a.statements()...); err != nil {
		return nil, wrap("write to outbox", err)
	}
	return a.receipts()
}

// AppendBatch adds the statements of [Store.Append] to a batch that the caller sends in its transaction. Envelopes are
// validated at once, with the payload limit that was read last; done gets the receipts while the results of the batch
// are read. An error that done gets is returned to who reads the results, too, and the transaction must be rolled back.
func (s *Store) AppendBatch(b *pgx.Batch, envs []schema.Envelope, done func([]schema.Receipt, error)) error {
	if len(envs) == 0 {
		return nil
	}
	limit, _ := s.limit.get()
	a, err := newAppending(envs, limit)
	if err != nil {
		return err
	}
	finish := func(receipts []schema.Receipt, err error) error {
		if done != nil {
			done(receipts, err)
		}
		return err
	}
	for _, step := range a.statements() {
		queue(b, step)
	}
	b.Queue(sqlMaxPayload).Query(func(rows pgx.Rows) error { // after the others, whose answers it needs
		if err := readAll(rows, scan(&limit)); err != nil {
			return finish(nil, wrap("read payload limit", err))
		}
		s.limit.set(limit)
		if err := validate(envs, limit); err != nil {
			return finish(nil, err)
		}
		return finish(a.receipts())
	})
	return nil
}

func validate(envs []schema.Envelope, maxPayload int) error {
	var faults []error
	for _, e := range envs {
		if err := e.Validate(maxPayload); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
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
