package postgres

import (
	"context"
	"errors"

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
	if a.open() {
		if err := r.run(ctx, a.readKeys()); err != nil {
			return nil, wrap("write to outbox", err)
		}
	}
	return a.receipts()
}

// AppendBatch adds the statements of [Store.Append] to a batch that the caller sends in its transaction. Envelopes are
// validated at once. A payload limit that was not read within the last minute is read with the batch, and they are
// validated by it then. done gets the receipts while the results of the batch are read. An error that done gets
// is returned to who reads the results, too, and the transaction must be rolled back.
func (s *Store) AppendBatch(b *pgx.Batch, envs []schema.Envelope, done func([]schema.Receipt, error)) error {
	if len(envs) == 0 {
		return nil
	}
	limit, fresh := s.limit.get()
	if !fresh {
		limit = mostPayload // it may be higher now
	}
	a, err := newAppending(envs, limit)
	if err != nil {
		return err
	}
	steps := a.statements()
	if a.single() && a.open() {
		steps = append(steps, a.readKeys())
	}
	if !fresh {
		steps = append(steps, statement{sql: sqlMaxPayload, each: scan(&limit)})
	}
	last := len(steps) - 1
	for _, step := range steps[:last] {
		queue(b, step)
	}
	b.Queue(steps[last].sql, steps[last].args...).Query(func(rows pgx.Rows) error { // after the others, whose answers it needs
		receipts, err := []schema.Receipt(nil), wrap("write to outbox", readAll(rows, steps[last].each))
		if err == nil && !fresh {
			s.limit.set(limit)
			err = validate(envs, limit)
		}
		if err == nil {
			receipts, err = a.receipts()
		}
		if done != nil {
			done(receipts, err)
		}
		return err
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
