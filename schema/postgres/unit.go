package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Unit runs fn in a transaction of its own, as [Store.InTx] does, for code that need not know the database.
func (s *Store) Unit(ctx context.Context, fn func(schema.Unit) error) error {
	return s.InTx(ctx, func(tx pgx.Tx) error { return fn(unit{s, tx}) })
}

// MaxUnits returns how many units may stay open at the same time, as those of handlers do while they run, and still
// leave a connection of the pool to everything else.
func (s *Store) MaxUnits() int { return int(s.pool.Config().MaxConns) - 1 }

type unit struct {
	s  *Store
	tx pgx.Tx
}

func (u unit) Append(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	return u.s.Append(ctx, u.tx, envs)
}

func (u unit) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	return u.s.ClaimTx(ctx, u.tx, run)
}

func (u unit) Done(ctx context.Context, run schema.Run) error {
	return wrap("note key as done", done(ctx, pgxRunner{u.tx}.run, run, durably, keyLock(run)))
}

func (u unit) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	record, err := fail(ctx, pgxRunner{u.tx}.run, run, f, durably, keyLock(run))
	return record, wrap("note failure", err)
}

// keyLock makes claims find the key busy until the caller's transaction ends, in place of waiting for it.
func keyLock(run schema.Run) statement {
	return statement{sql: `SELECT pg_advisory_xact_lock($1::bigint)`, args: []any{lockOf(run.Key.Hash())}}
}

func (u unit) LoadSaga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error) {
	return readSaga(ctx, u.tx, saga, id, " FOR UPDATE")
}

func (u unit) SaveSaga(ctx context.Context, rec schema.SagaRecord, ev schema.SagaEvent) error {
	return saveSaga(ctx, u.tx, rec, ev)
}

func (u unit) ResetForReplay(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	return u.s.ResetForReplay(ctx, u.tx, key, from)
}

func (u unit) Drop(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	return u.s.Drop(ctx, u.tx, key, from)
}

func (u unit) Tx() any { return u.tx }

// RowReader is [Store.NewReader] for code that need not know the database.
func (s *Store) RowReader(ref schema.ShardRef, shards int) schema.RowReader {
	return s.NewReader(ref, shards)
}
