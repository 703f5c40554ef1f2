package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Unit runs fn in a transaction of its own, as [Store.InTx] does, for code that need not know the database. The
// transaction begins in the round trip of its first statement. If there is none, it begins all the same: who has nothing
// to do may want to know whether the database would.
func (s *Store) Unit(ctx context.Context, fn func(schema.Unit) error) error {
	u := &unit{s: s}
	u.begin = func() (pgx.Tx, error) {
		err := u.run(ctx)
		return u.tx, wrap("begin transaction", err)
	}
	defer func() {
		if u.tx != nil {
			rollback(ctx, u.tx)
		}
		u.err = pgx.ErrTxClosed
	}()
	err := fn(u)
	if err == nil {
		_, err = u.begin()
	}
	switch {
	case err == nil:
		return s.failed("commit transaction", u.tx.Commit(ctx))
	case u.tx == nil, errors.Is(err, u.err) && schema.KindOf(wrap("", u.err)) == schema.Permanent: // no outage: it would not begin
		return err
	}
	return s.broken(ctx, u.tx, err)
}

// MaxUnits returns how many units may stay open at the same time, as those of handlers do while they run, and still
// leave a connection of the pool to everything else.
func (s *Store) MaxUnits() int { return int(s.pool.Config().MaxConns) - 1 }

type unit struct {
	s     *Store
	begin func() (pgx.Tx, error)
	tx    pgx.Tx // nil until it is begun
	err   error  // with which it could not begin, or has ended
}

// run is a runner's. Without statements it only begins the transaction.
func (u *unit) run(ctx context.Context, steps ...statement) error {
	switch {
	case u.err != nil:
		return u.err
	case u.tx == nil:
		return u.beginWith(ctx, steps...)
	case len(steps) == 0:
		return nil
	}
	return pgxRunner{u.tx}.run(ctx, steps...)
}

// beginWith begins the transaction and runs its first statements. If that fails, nothing more comes of it.
func (u *unit) beginWith(ctx context.Context, steps ...statement) error {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for _, s := range steps {
		queue(b, s)
	}
	answers := u.s.pool.SendBatch(ctx, b)
	tx, err := answers.Tx(), answers.Close()
	if tx.Conn() == nil { // the pool had none
		err = u.s.failed("take a connection", err)
	} else {
		u.tx = tx
	}
	u.err = err
	return err
}

func (u *unit) Append(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	return u.s.append(ctx, u, envs)
}

func (u *unit) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	res, err := claimTx(ctx, u.run, run)
	return res, wrap("claim key", err)
}

func (u *unit) Done(ctx context.Context, run schema.Run) error {
	return wrap("note key as done", done(ctx, u.run, run, durably, keyLock(run)))
}

func (u *unit) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	record, err := fail(ctx, u.run, run, f, durably, keyLock(run))
	return record, wrap("note failure", err)
}

// keyLock makes claims find the key busy until the caller's transaction ends, in place of waiting for it.
func keyLock(run schema.Run) statement {
	return statement{sql: `SELECT pg_advisory_xact_lock($1::bigint)`, args: []any{lockOf(run.Key.Hash())}}
}

func (u *unit) LoadSaga(ctx context.Context, saga, id string) (rec schema.SagaRecord, found bool, err error) {
	tx, err := u.begin()
	if err != nil {
		return rec, false, err
	}
	return readSaga(ctx, tx, saga, id, " FOR UPDATE")
}

func (u *unit) SaveSaga(ctx context.Context, rec schema.SagaRecord, ev schema.SagaEvent) error {
	tx, err := u.begin()
	if err != nil {
		return err
	}
	return saveSaga(ctx, tx, rec, ev)
}

func (u *unit) ResetForReplay(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	tx, err := u.begin()
	if err != nil {
		return false, err
	}
	return u.s.ResetForReplay(ctx, tx, key, from)
}

func (u *unit) Drop(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	tx, err := u.begin()
	if err != nil {
		return false, err
	}
	return u.s.Drop(ctx, tx, key, from)
}

func (u *unit) Tx() any {
	tx, err := u.begin()
	if err != nil {
		return err
	}
	return tx
}

// RowReader is [Store.NewReader] for code that need not know the database.
func (s *Store) RowReader(ref schema.ShardRef, shards int) schema.RowReader {
	return s.NewReader(ref, shards)
}
