package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A SQLStore does for a database/sql transaction what [Store] does for one of pgx. The driver must be pgx's stdlib.
type SQLStore struct{ s *Store }

// SQL returns the store for database/sql transactions.
func (s *Store) SQL() SQLStore { return SQLStore{s} }

// Append is [Store.Append].
func (s SQLStore) Append(ctx context.Context, tx *sql.Tx, envs []schema.Envelope) ([]schema.Receipt, error) {
	return s.s.append(ctx, sqlRunner{tx}, envs)
}

// Cancel is [Store.Cancel].
func (s SQLStore) Cancel(ctx context.Context, tx *sql.Tx, id string) error {
	return cancel(ctx, sqlRunner{tx}, id)
}

// Reschedule is [Store.Reschedule].
func (s SQLStore) Reschedule(ctx context.Context, tx *sql.Tx, id string, at time.Time) error {
	return reschedule(ctx, sqlRunner{tx}, id, at)
}

// Durability is [Store.Durability].
func (s SQLStore) Durability(ctx context.Context) (level schema.Durability, weak string, err error) {
	return s.s.Durability(ctx)
}
