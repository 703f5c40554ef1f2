package sqlite

import (
	"context"
	"database/sql"
	"math"
	"sync"

	"github.com/millbridge/millbridge/schema"
)

// Unit runs f as one transaction, for code that need not know the database. The transaction begins when f first needs
// it, not before: SQLite has one write lock, and a handler that waits for something slow before it writes must not hold
// it. A claim is an answer from a look at the inbox until then; it is made good when the transaction begins, or at the
// end, and an error if it cannot be ([schema.ErrLeaseLost]).
func (s *Store) Unit(ctx context.Context, f func(schema.Unit) error) error {
	u := &unit{store: s}
	u.begin = sync.OnceValues(func() (*sql.Tx, error) { return u.start(ctx) })
	defer u.end()
	if err := f(u); err != nil {
		return blame(err)
	}
	return u.commit()
}

// MaxUnits returns how many units may stay open at the same time: any number. A unit holds nothing until it writes, and
// from then on is the only one that does.
func (s *Store) MaxUnits() int { return math.MaxInt }

type unit struct {
	store *Store
	begin func() (*sql.Tx, error)
	tx    *sql.Tx     // nil until it is begun
	run   *schema.Run // claimed by a look only
	key   *[32]byte   // held against other runs of this store
}

// start begins the transaction and makes the claim good.
func (u *unit) start(ctx context.Context) (*sql.Tx, error) {
	tx, err := u.store.begin(ctx)
	if err != nil {
		return nil, wrap("begin transaction", err)
	}
	u.tx = tx
	if u.run == nil {
		return tx, nil
	}
	res, err := u.store.ClaimTx(ctx, tx, *u.run)
	if err != nil {
		return nil, err
	}
	if res.Claim != schema.ClaimRun {
		return nil, wrap("claim message", leaseLost())
	}
	return tx, nil
}

func (u *unit) commit() error {
	if u.tx == nil && u.run == nil {
		return nil // nothing was asked for
	}
	tx, err := u.begin()
	if err != nil {
		return err
	}
	return wrap("commit transaction", tx.Commit())
}

// end undoes what was not committed and lets other runs of the key in.
func (u *unit) end() {
	if u.tx != nil {
		u.tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	}
	if u.key != nil {
		u.store.running.Delete(*u.key)
	}
}

func (u *unit) Append(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	tx, err := u.begin()
	if err != nil {
		return nil, err
	}
	return u.store.Append(ctx, tx, envs)
}

func (u *unit) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	if u.tx != nil {
		return u.store.ClaimTx(ctx, u.tx, run)
	}
	res, err := u.store.look(ctx, run)
	if err != nil || res.Claim != schema.ClaimRun {
		return res, err
	}
	hash := run.Key.Hash()
	if _, held := u.store.running.LoadOrStore(hash, nil); held {
		return schema.ClaimResult{Claim: schema.ClaimBusy, Record: res.Record}, nil
	}
	u.run, u.key = &run, &hash
	return res, nil
}

func (u *unit) Done(ctx context.Context, run schema.Run) error {
	tx, err := u.begin()
	if err != nil {
		return err
	}
	return wrap("record message as done", u.store.done(ctx, tx, run))
}

func (u *unit) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	tx, err := u.begin()
	if err != nil {
		return schema.InboxRecord{}, err
	}
	rec, err := u.store.fail(ctx, tx, run, f)
	return rec, wrap("record failure", err)
}

func (u *unit) ResetForReplay(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	tx, err := u.begin()
	if err != nil {
		return false, err
	}
	return u.store.ResetForReplay(ctx, tx, key, from)
}

func (u *unit) Drop(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	tx, err := u.begin()
	if err != nil {
		return false, err
	}
	return u.store.Drop(ctx, tx, key, from)
}

// Tx returns the *sql.Tx, or the error if it cannot begin.
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
