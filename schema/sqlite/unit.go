package sqlite

import (
	"context"
	"database/sql"

	"github.com/millbridge/millbridge/schema"
)

// Unit runs f in a write transaction and commits it, as [Store.InTx] does, for code that need not know the database.
func (s *Store) Unit(ctx context.Context, f func(schema.Unit) error) error {
	return s.InTx(ctx, func(tx *sql.Tx) error { return f(unit{s, tx}) })
}

type unit struct {
	store *Store
	tx    *sql.Tx
}

func (u unit) Append(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	return u.store.Append(ctx, u.tx, envs)
}

func (u unit) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	return u.store.ClaimTx(ctx, u.tx, run)
}

func (u unit) ResetForReplay(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	return u.store.ResetForReplay(ctx, u.tx, key, from)
}

func (u unit) Drop(ctx context.Context, key schema.InboxKey, from int) (bool, error) {
	return u.store.Drop(ctx, u.tx, key, from)
}

func (u unit) Tx() any { return u.tx }
