package sqlite

import (
	"context"
	"database/sql"

	"github.com/millbridge/millbridge/schema"
)

// Claim asks whether a run may handle its message, and if so keeps others out for run.Lease; see [Store.Extend],
// [Store.Done], [Store.Fail] and [Store.Free].
func (s *Store) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	var res schema.ClaimResult
	err := s.update(ctx, "claim message", func(tx *sql.Tx) error {
		var err error
		res, err = s.claim(ctx, tx, run, schema.InboxRunning)
		return err
	})
	if err != nil {
		return schema.ClaimResult{}, err
	}
	return res, nil
}

// ClaimTx asks the same in the handler's transaction and records the message as done: its commit is the handling. The
// transaction holds SQLite's write lock from here on, so no other run of the key can be between claim and commit.
func (s *Store) ClaimTx(ctx context.Context, tx *sql.Tx, run schema.Run) (schema.ClaimResult, error) {
	res, err := s.claim(ctx, tx, run, schema.InboxDone)
	return res, wrap("claim message", err)
}

// look answers a run without writing. Of the same key it may answer several that they may run.
func (s *Store) look(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	now := s.clock()
	old, found, err := lookup(ctx, s.read, run.Key.Hash())
	switch {
	case err != nil:
		return schema.ClaimResult{}, wrap("claim message", err)
	case !found:
		old = schema.NewInboxRow(run)
	}
	old.Key = run.Key
	return old.Answer(run, now), nil
}

// claim decides a run in tx and, when it may run, records it in the given state.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, run schema.Run, state schema.InboxState) (schema.ClaimResult, error) {
	now := s.clock()
	// The insert comes first: it takes the write lock before anything is read.
	row := schema.NewInboxRow(run).Start(run, state, now)
	written, err := s.insertRow(ctx, tx, run.Key.Hash(), row)
	if err != nil {
		return schema.ClaimResult{}, err
	}
	if written {
		return schema.ClaimResult{Claim: schema.ClaimRun, Record: row.InboxRecord}, nil
	}
	old, _, err := lookup(ctx, tx, run.Key.Hash())
	if err != nil {
		return schema.ClaimResult{}, err
	}
	old.Key = run.Key
	if res := old.Answer(run, now); res.Claim != schema.ClaimRun {
		return res, nil
	}
	row = old.Start(run, state, now)
	if err := updateRow(ctx, tx, run.Key.Hash(), row); err != nil {
		return schema.ClaimResult{}, err
	}
	return schema.ClaimResult{Claim: schema.ClaimRun, Record: row.InboxRecord}, nil
}

// Fail records a failure of a run, ends its lease and returns the record. The run needs no claim: one in the handler's
// transaction was rolled back with it. [schema.ErrLeaseLost] if the message is in other hands or has been settled.
func (s *Store) Fail(ctx context.Context, run schema.Run, f schema.Failure) (rec schema.InboxRecord, err error) {
	err = s.update(ctx, "record failure", func(tx *sql.Tx) error {
		rec, err = s.fail(ctx, tx, run, f)
		return err
	})
	if err != nil {
		return schema.InboxRecord{}, err
	}
	return rec, nil
}

func (s *Store) fail(ctx context.Context, tx *sql.Tx, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	now := s.clock()
	row, _ := schema.NewInboxRow(run).Fail(run, f, now)
	written, err := s.insertRow(ctx, tx, run.Key.Hash(), row)
	if err != nil || written {
		return row.InboxRecord, err
	}
	old, _, err := lookup(ctx, tx, run.Key.Hash())
	if err != nil {
		return schema.InboxRecord{}, err
	}
	old.Key = run.Key
	row, ok := old.Fail(run, f, now)
	if !ok {
		return schema.InboxRecord{}, leaseLost()
	}
	return row.InboxRecord, updateRow(ctx, tx, run.Key.Hash(), row)
}
