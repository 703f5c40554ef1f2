package postgres

import (
	"context"
	"database/sql"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

// MaxPayload returns the payload limit in bytes, read in tx unless it was read within the last minute. The adapter of
// [Store.SchemaAdapter] validates with what was read then, or reads it over a connection of its own.
func (s *Store) MaxPayload(ctx context.Context, tx pgx.Tx) (int, error) {
	return s.maxPayload(ctx, pgxRunner{tx})
}

// Exec runs a statement of the adapter in tx.
func (s *Store) Exec(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	_, err := tx.Exec(ctx, query, args...)
	return wrap("write to outbox", err)
}

// MaxPayload is [Store.MaxPayload].
func (s SQLStore) MaxPayload(ctx context.Context, tx *sql.Tx) (int, error) {
	return s.s.maxPayload(ctx, sqlRunner{tx})
}

// Exec is [Store.Exec].
func (s SQLStore) Exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return wrap("write to outbox", err)
}

// SchemaAdapter is [Store.SchemaAdapter].
func (s SQLStore) SchemaAdapter() wmsql.SchemaAdapter { return s.s.SchemaAdapter() }

// Unit is [Store.Unit]; its transaction is one of pgx.
func (s SQLStore) Unit(ctx context.Context, fn func(schema.Unit) error) error {
	return s.s.Unit(ctx, fn)
}
