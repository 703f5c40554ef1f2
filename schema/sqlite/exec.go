package sqlite

import (
	"context"
	"database/sql"
)

// MaxPayload returns the payload limit in bytes, read in tx unless it was read within the last minute.
func (s *Store) MaxPayload(ctx context.Context, tx *sql.Tx) (int, error) {
	limit, err := s.limit.get(ctx, tx, limitLocking, s.opts.Now())
	if err != nil {
		return 0, wrap("read payload limit", err)
	}
	return limit, nil
}

// Exec runs a statement of the adapter in tx.
func (s *Store) Exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return wrap("write to outbox", err)
}
