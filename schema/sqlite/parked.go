package sqlite

import (
	"context"
	"database/sql"
	"errors"
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

// ReleaseParked puts a parked row back into the outbox, with everything parked under its ordering key, in order, and
// returns how many rows that were. They get new sequences, so rows of the key that are still in the outbox behind them go
// along.
func (s *Store) ReleaseParked(ctx context.Context, name schema.RowName) (released int, err error) {
	err = s.update(ctx, "release parked row", func(tx *sql.Tx) error {
		lock, err := orderOfParked(ctx, tx, name)
		switch {
		case err != nil:
			return err
		case lock.Valid:
			released, err = s.releaseKey(ctx, tx, lock.Int64)
		default:
			released, err = s.release(ctx, tx, isParked, name.Seq, name.ID[:])
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return released, nil
}

// DropParked deletes a parked row for good. When nothing else blocks its ordering key any more, the rows that waited
// behind it go back into the outbox in order.
func (s *Store) DropParked(ctx context.Context, name schema.RowName) error {
	return s.update(ctx, "drop parked row", func(tx *sql.Tx) error {
		lock, err := orderOfParked(ctx, tx, name)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO millbridge_settled (message_id, stream_seq, handler, settled_at)
			SELECT ?, 0, stream, ? FROM millbridge_parked WHERE `+isParked+`
			ON CONFLICT DO UPDATE SET settled_at = excluded.settled_at`, name.ID.String(), s.now(), name.Seq, name.ID[:]); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM millbridge_parked WHERE "+isParked, name.Seq, name.ID[:]); err != nil {
			return err
		}
		if !lock.Valid {
			return nil
		}
		var blocked bool
		err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM millbridge_parked WHERE order_lock = ? AND NOT behind)", lock.Int64).Scan(&blocked)
		if err == nil && !blocked {
			_, err = s.releaseKey(ctx, tx, lock.Int64)
		}
		return err
	})
}

// isParked is whether a parked row has this name. Ids alone are the publishers': two messages may have one in common.
const isParked = "seq = ? AND id = ?"

// orderOfParked returns the lock of the parked row's ordering key, if it has one.
func orderOfParked(ctx context.Context, tx *sql.Tx, name schema.RowName) (lock sql.NullInt64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT order_lock FROM millbridge_parked WHERE "+isParked, name.Seq, name.ID[:]).Scan(&lock)
	if errors.Is(err, sql.ErrNoRows) {
		err = schema.WithKind(schema.Permanent, fmt.Errorf("parked row %d: %w", name.Seq, schema.ErrNotFound))
	}
	return lock, err
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
