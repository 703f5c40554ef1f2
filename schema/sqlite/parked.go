package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// behindReason is the reason of rows that are parked only because of their ordering key.
const behindReason = "waits behind a parked message of its ordering key"

// Park moves a row that can never be forwarded out of the way, whole and with its reason. [schema.ErrLeaseLost] if the
// shard has another owner, [schema.ErrNotFound] if the row is gone.
func (s *Store) Park(ctx context.Context, p schema.ParkParams) error {
	return s.update(ctx, "park row", func(tx *sql.Tx) error {
		// Naming the owner in a statement that writes takes the lock before anything is read.
		n, err := affected(ctx, tx, `UPDATE millbridge_shards SET updated_at = ?
			WHERE stream = ? AND generation = ? AND shard = ? AND owner = ?`,
			s.now(), string(p.Stream), p.Generation, p.Shard, p.Owner)
		if err != nil {
			return err
		}
		if n == 0 {
			return leaseLost()
		}
		n, err = s.park(ctx, tx, schema.OneLine(p.Reason), false, "seq = ? AND id = ?", p.Name.Seq, p.Name.ID[:])
		if err == nil && n == 0 {
			return schema.WithKind(schema.Permanent, fmt.Errorf("row %d: %w", p.Name.Seq, schema.ErrNotFound))
		}
		return err
	})
}

// park moves the outbox rows that where selects.
func (s *Store) park(ctx context.Context, tx *sql.Tx, reason string, behind bool, where string, args ...any) (int, error) {
	n, err := affected(ctx, tx, "INSERT INTO millbridge_parked (seq, "+rowColumns+", reason, behind, parked_at) SELECT seq, "+rowColumns+
		", ?, ?, ? FROM millbridge_outbox WHERE "+where, append([]any{reason, behind, s.now()}, args...)...)
	if err != nil || n == 0 {
		return 0, err
	}
	return affected(ctx, tx, "DELETE FROM millbridge_outbox WHERE "+where, args...)
}

// parkFollowers moves up to limit outbox rows behind the parked rows of their ordering keys.
func (s *Store) parkFollowers(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
	seqs, err := collect(ctx, tx, scanSeq, followers+" LIMIT ?", limit)
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	return s.park(ctx, tx, behindReason, true, "seq IN (SELECT value FROM json_each(?))", list(seqs))
}

// followers selects the outbox rows that come after a parked row of their key; the parked rows are the outer loop.
const followers = `SELECT DISTINCT o.seq FROM millbridge_parked AS p CROSS JOIN millbridge_outbox AS o
	WHERE p.order_lock IS NOT NULL AND NOT p.behind AND o.order_lock = p.order_lock AND o.seq > p.seq`

func scanSeq(rows *sql.Rows, seq *int64) error { return rows.Scan(seq) }

// ReleaseParked puts the parked message with this id back into the outbox, with everything parked under its ordering
// key, in order, and returns how many rows that were. They get new sequences, so rows of the key that are still in the
// outbox behind them go along.
func (s *Store) ReleaseParked(ctx context.Context, id string) (int, error) {
	rowID := schema.RowID(id)
	released := 0
	err := s.update(ctx, "release parked message", func(tx *sql.Tx) error {
		parked, err := s.parkedByID(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, key := range parked {
			n, err := 0, error(nil)
			if key.lock.Valid {
				n, err = s.releaseKey(ctx, tx, key.lock.Int64)
			} else {
				n, err = s.release(ctx, tx, "id = ? AND order_lock IS NULL", rowID[:])
			}
			if err != nil {
				return err
			}
			released += n
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return released, nil
}

// DropParked deletes a parked message for good. When nothing else blocks its ordering key any more, the rows that
// waited behind it go back into the outbox in order.
func (s *Store) DropParked(ctx context.Context, id string) error {
	rowID := schema.RowID(id)
	return s.update(ctx, "drop parked message", func(tx *sql.Tx) error {
		parked, err := s.parkedByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO millbridge_settled (message_id, stream_seq, handler, settled_at)
			SELECT DISTINCT ?, 0, stream, ? FROM millbridge_parked WHERE id = ?
			ON CONFLICT DO UPDATE SET settled_at = excluded.settled_at`, rowID.String(), s.now(), rowID[:]); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM millbridge_parked WHERE id = ?", rowID[:]); err != nil {
			return err
		}
		for _, key := range parked {
			if !key.lock.Valid {
				continue
			}
			var blocked bool
			if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM millbridge_parked WHERE order_lock = ? AND NOT behind)",
				key.lock.Int64).Scan(&blocked); err != nil {
				return err
			}
			if !blocked {
				if _, err := s.releaseKey(ctx, tx, key.lock.Int64); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

type parkedKey struct{ lock sql.NullInt64 }

// parkedByID returns the ordering keys of the parked rows with this id.
func (s *Store) parkedByID(ctx context.Context, tx *sql.Tx, id string) ([]parkedKey, error) {
	rowID := schema.RowID(id)
	keys, err := collect(ctx, tx, func(rows *sql.Rows, k *parkedKey) error { return rows.Scan(&k.lock) },
		"SELECT DISTINCT order_lock FROM millbridge_parked WHERE id = ?", rowID[:])
	if err == nil && len(keys) == 0 {
		err = schema.WithKind(schema.Permanent, fmt.Errorf("parked message %q: %w", schema.OneLine(id), schema.ErrNotFound))
	}
	return keys, err
}

// releaseKey puts all rows of an ordering key back, those first that are still in the outbox behind them.
func (s *Store) releaseKey(ctx context.Context, tx *sql.Tx, lock int64) (int, error) {
	_, err := s.park(ctx, tx, behindReason, true,
		"order_lock = ? AND seq > (SELECT min(seq) FROM millbridge_parked WHERE order_lock = ?)", lock, lock)
	if err != nil {
		return 0, err
	}
	return s.release(ctx, tx, "order_lock = ?", lock)
}

// release moves the parked rows that where selects to the end of the outbox.
func (s *Store) release(ctx context.Context, tx *sql.Tx, where string, args ...any) (int, error) {
	_, err := tx.ExecContext(ctx, "INSERT INTO millbridge_outbox ("+rowColumns+") SELECT "+rowColumns+
		" FROM millbridge_parked WHERE "+where+" ORDER BY seq", args...)
	if err != nil {
		return 0, err
	}
	return affected(ctx, tx, "DELETE FROM millbridge_parked WHERE "+where, args...)
}
