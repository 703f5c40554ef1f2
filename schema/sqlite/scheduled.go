package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Cancel takes a scheduled message back. Its idempotency key is free again, or publishing it anew would silently do
// nothing. [schema.ErrNotFound] if there is no such message or it has moved on, [schema.ErrAmbiguous] if several have this
// id.
func (s *Store) Cancel(ctx context.Context, tx *sql.Tx, id string) error {
	seq, err := scheduled(ctx, tx, id)
	if err != nil {
		return wrap("cancel message", err)
	}
	rows, err := collect(ctx, tx, func(rows *sql.Rows, r *schema.Row) error { return scanRow(rows, r) },
		"DELETE FROM millbridge_scheduled WHERE seq = ? RETURNING seq, "+rowColumns, seq)
	if err != nil {
		return wrap("cancel message", err)
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

// Reschedule gives a scheduled message another time; one in the past makes it due at once. Its errors are those of
// [Store.Cancel].
func (s *Store) Reschedule(ctx context.Context, tx *sql.Tx, id string, at time.Time) error {
	seq, err := scheduled(ctx, tx, id)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE millbridge_scheduled SET due_at = ? WHERE seq = ?", at.UnixNano(), seq)
	}
	return wrap("reschedule message", err)
}

// scheduled returns the sequence of the only scheduled message with this id.
func scheduled(ctx context.Context, tx *sql.Tx, id string) (int64, error) {
	rowID := schema.RowID(id)
	seqs, err := collect(ctx, tx, scanSeq, "SELECT seq FROM millbridge_scheduled WHERE id = ?", rowID[:])
	switch {
	case err != nil:
		return 0, err
	case len(seqs) == 0:
		return 0, schema.WithKind(schema.Permanent, fmt.Errorf("scheduled message %q: %w", schema.OneLine(id), schema.ErrNotFound))
	case len(seqs) > 1:
		return 0, schema.WithKind(schema.Permanent, fmt.Errorf("%d scheduled messages %q: %w", len(seqs), schema.OneLine(id), schema.ErrAmbiguous))
	}
	return seqs[0], nil
}
