package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Cancel takes a scheduled message back. Its idempotency key is free again, or publishing it anew would silently do
// nothing. [schema.ErrNotFound] if there is no such message or it has moved on.
func (s *Store) Cancel(ctx context.Context, tx *sql.Tx, id string) error {
	rowID := schema.RowID(id)
	rows, err := collect(ctx, tx, func(rows *sql.Rows, r *schema.Row) error { return scanRow(rows, r) },
		"DELETE FROM millbridge_scheduled WHERE id = ? RETURNING seq, "+rowColumns, rowID[:])
	if err != nil {
		return wrap("cancel message", err)
	}
	if len(rows) == 0 {
		return wrap("cancel message", notScheduled(id))
	}
	for _, r := range rows {
		e, err := r.Envelope()
		if err != nil || !keyed(e) {
			continue // no key that we could know
		}
		hash := e.KeyHash()
		if _, err := tx.ExecContext(ctx, "DELETE FROM millbridge_keys WHERE key_hash = ? AND message_id = ?", hash[:], e.ID); err != nil {
			return wrap("free idempotency key", err)
		}
	}
	return nil
}

// Reschedule gives a scheduled message another time; one in the past makes it due at once. [schema.ErrNotFound] if
// there is no such message or it has moved on.
func (s *Store) Reschedule(ctx context.Context, tx *sql.Tx, id string, at time.Time) error {
	rowID := schema.RowID(id)
	n, err := affected(ctx, tx, "UPDATE millbridge_scheduled SET due_at = ? WHERE id = ?", at.UnixNano(), rowID[:])
	if err == nil && n == 0 {
		err = notScheduled(id)
	}
	return wrap("reschedule message", err)
}

func notScheduled(id string) error {
	return schema.WithKind(schema.Permanent, fmt.Errorf("scheduled message %q: %w", schema.OneLine(id), schema.ErrNotFound))
}
