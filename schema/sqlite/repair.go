package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// ShardRows lists rows of a shard without their payloads, by sequence, after the named one. Rows that are not ready to
// be sent are among them.
func (s *Store) ShardRows(ctx context.Context, ref schema.ShardRef, shards int, after schema.RowName, limit int) ([]schema.Row, error) {
	rows, err := collect(ctx, s.read, func(rows *sql.Rows, r *schema.Row) error { return scanRow(rows, r) },
		`SELECT seq, id, stream, slot, subject, order_lock, created_at, header, x'' FROM millbridge_outbox
		WHERE stream = ? AND (slot * ?) >> 16 = ? AND seq > ? ORDER BY seq LIMIT ?`,
		string(ref.Stream), max(shards, 1), ref.Shard, after.Seq, limit)
	return rows, wrap("list rows of shard", err)
}

// RepairShard sets a shard's ledger, whatever it was, and removes and parks rows. [schema.ErrLeaseLost] if the shard
// has another owner.
func (s *Store) RepairShard(ctx context.Context, p schema.RepairParams) error {
	return s.update(ctx, fmt.Sprintf("repair shard %s/%d", p.Stream, p.Shard), func(tx *sql.Tx) error {
		n, err := affected(ctx, tx, `UPDATE millbridge_shards SET ledger_owner = owner, batch = ?, total = ?, cursor_seq = ?, updated_at = ?
			WHERE stream = ? AND generation = ? AND shard = ? AND owner = ?`,
			p.Batch, p.Total, int64(p.CursorSeq), s.now(), string(p.Stream), p.Generation, p.Shard, p.Owner)
		if err != nil {
			return err
		}
		if n == 0 {
			return leaseLost()
		}
		for start := 0; start < len(p.Park); start += chunk {
			if err := s.parkChunk(ctx, tx, p.Park[start:min(start+chunk, len(p.Park))], p.Reason); err != nil {
				return err
			}
		}
		gone := append(append([]schema.RowName{}, p.Remove...), p.Park...)
		for start := 0; start < len(gone); start += chunk {
			if _, err := removeChunk(ctx, tx, gone[start:min(start+chunk, len(gone))]); err != nil {
				return err
			}
		}
		return s.repairScheduled(ctx, tx, p)
	})
}

// repairScheduled does to scheduled rows what RepairShard does to those in the outbox.
func (s *Store) repairScheduled(ctx context.Context, tx *sql.Tx, p schema.RepairParams) error {
	for _, n := range p.ParkScheduled {
		// A parked row has a number of the outbox, by which it holds back what follows it in its ordering key.
		res, err := tx.ExecContext(ctx, "INSERT INTO millbridge_outbox ("+rowColumns+") SELECT "+rowColumns+
			" FROM millbridge_scheduled WHERE seq = ? AND id = ?", n.Seq, n.ID[:])
		if err != nil {
			return err
		}
		if found, err := res.RowsAffected(); err != nil || found == 0 {
			if err != nil {
				return err
			}
			continue
		}
		seq, err := res.LastInsertId()
		if err != nil {
			return err
		}
		moved := []schema.RowName{{Seq: seq, ID: n.ID}}
		if err := s.parkChunk(ctx, tx, moved, p.Reason); err != nil {
			return err
		}
		if _, err := removeChunk(ctx, tx, moved); err != nil {
			return err
		}
	}
	for _, n := range append(append([]schema.RowName{}, p.RemoveScheduled...), p.ParkScheduled...) {
		if _, err := tx.ExecContext(ctx, "DELETE FROM millbridge_scheduled WHERE seq = ? AND id = ?", n.Seq, n.ID[:]); err != nil {
			return err
		}
	}
	return nil
}

// parkChunk copies rows to where parked rows are kept.
func (s *Store) parkChunk(ctx context.Context, tx *sql.Tx, names []schema.RowName, reason string) error {
	args := make([]any, 0, 2*len(names)+2)
	for _, n := range names {
		args = append(args, n.Seq, n.ID[:])
	}
	args = append(args, schema.OneLine(reason), s.now())
	_, err := tx.ExecContext(ctx, `WITH named (seq, id) AS (VALUES (?,?)`+strings.Repeat(",(?,?)", len(names)-1)+`)
		INSERT INTO millbridge_parked (seq, `+rowColumns+`, reason, behind, parked_at)
		SELECT o.seq, `+strings.ReplaceAll("o."+rowColumns, ", ", ", o.")+`, ?, 0, ?
		FROM named AS n CROSS JOIN millbridge_outbox AS o WHERE o.seq = n.seq AND o.id = n.id`, args...)
	return err
}

// Rebind is for databases that notice when they were copied; this one does not.
func (s *Store) Rebind(context.Context) error { return nil }

// NewOutbox gives this database's outbox an id of its own, with ledgers that begin anew. Rows stay. The former id is
// left to the original that this database was copied from.
func (s *Store) NewOutbox(ctx context.Context) (id string, err error) {
	err = s.update(ctx, "begin a new outbox", func(tx *sql.Tx) error {
		for _, statement := range []string{
			`UPDATE millbridge_shards SET owner = '', ledger_owner = '', batch = 0, total = 0, cursor_seq = 0`,
			`DELETE FROM millbridge_owners`,
			// What was settled before was sent by the other.
			`UPDATE millbridge_inbox SET stream_seq = 0 WHERE stream_seq > 0`,
			`DELETE FROM millbridge_settled WHERE stream_seq > 0`,
			`DELETE FROM millbridge_counts`,
			// What the other's processes have agreed on.
			`DELETE FROM millbridge_leases`,
			`DELETE FROM millbridge_rates`,
			`DELETE FROM millbridge_circuits WHERE disabled_at = 0`, // what is disabled waits for a person
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return tx.QueryRowContext(ctx, `UPDATE millbridge_meta SET outbox_id = lower(hex(randomblob(8))) RETURNING outbox_id`).Scan(&id)
	})
	return id, err
}
