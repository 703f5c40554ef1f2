package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// errLedger rolls a removal back whose ledger row did not fit.
var errLedger = errors.New("ledger row does not fit")

// Remove deletes exactly the rows that a cursor names and moves the ledger to its batch, in one commit that is on disk
// when it returns. A named row that is among the scheduled ones again, because an older file was copied back, is deleted
// there. [schema.ErrLeaseLost] if the shard has another owner.
func (s *Store) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	var res schema.RemoveResult
	var last int64
	err := s.InTx(ctx, func(tx *sql.Tx) error {
		n, err := affected(ctx, tx, `UPDATE millbridge_shards SET ledger_owner = owner, batch = ?, total = ?, cursor_seq = ?, updated_at = ?
			WHERE stream = ? AND generation = ? AND shard = ? AND owner = ? AND batch < ? AND batch >= ?`,
			p.Batch, p.Total, int64(p.CursorSeq), s.now(), string(p.Stream), p.Generation, p.Shard, p.Owner, p.Batch, p.Removed)
		if err != nil {
			return err
		}
		if n == 0 {
			return errLedger
		}
		var waits bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM millbridge_scheduled)").Scan(&waits); err != nil {
			return err
		}
		for start := 0; start < len(p.Names); start += chunk {
			names := p.Names[start:min(start+chunk, len(p.Names))]
			if waits {
				if err := removeUndone(ctx, tx, names); err != nil {
					return err
				}
			}
			n, err := removeChunk(ctx, tx, names)
			if err != nil {
				return err
			}
			res.Removed += n
		}
		res.Vanished = len(p.Names) - res.Removed
		last, err = lastSeq(ctx, tx)
		return err
	})
	switch {
	case errors.Is(err, errLedger):
		return s.whyNotRemoved(ctx, p)
	case err != nil:
		return schema.RemoveResult{}, wrap("remove rows", err)
	}
	s.setFlushed(last)
	return res, nil
}

// removeChunk deletes rows by both parts of their names. The join finds each by its sequence; a plain
// (seq, id) IN (...) would walk the table.
func removeChunk(ctx context.Context, tx *sql.Tx, names []schema.RowName) (int, error) {
	return affected(ctx, tx, `WITH named (seq, id) AS (VALUES (?,?)`+strings.Repeat(",(?,?)", len(names)-1)+`)
		DELETE FROM millbridge_outbox WHERE seq IN (
			SELECT o.seq FROM named AS n CROSS JOIN millbridge_outbox AS o WHERE o.seq = n.seq AND o.id = n.id)`, namesArgs(names)...)
}

// removeUndone deletes rows that were sent and wait for their time again.
func removeUndone(ctx context.Context, tx *sql.Tx, names []schema.RowName) error {
	_, err := tx.ExecContext(ctx, `WITH named (seq, id) AS (VALUES (?,?)`+strings.Repeat(",(?,?)", len(names)-1)+`)
		DELETE FROM millbridge_scheduled WHERE seq IN (
			SELECT s.seq FROM named AS n CROSS JOIN millbridge_scheduled AS s WHERE s.id = n.id
			   AND NOT EXISTS (SELECT 1 FROM millbridge_outbox AS o WHERE o.seq = n.seq AND o.id = n.id))`, namesArgs(names)...)
	return err
}

func namesArgs(names []schema.RowName) []any {
	args := make([]any, 0, 2*len(names))
	for _, n := range names {
		args = append(args, n.Seq, n.ID[:])
	}
	return args
}

// whyNotRemoved rereads the ledger: it has the batch already, or the shard belongs to somebody else.
func (s *Store) whyNotRemoved(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	owner, batch, err := s.ledger(ctx, p.ShardRef)
	switch {
	case err != nil:
		return schema.RemoveResult{}, wrap("remove rows", err)
	case owner != p.Owner:
		return schema.RemoveResult{}, wrap("remove rows", leaseLost())
	case batch < p.Removed:
		return schema.RemoveResult{}, wrap("remove rows", fmt.Errorf("the ledger says batch %d, want at least %d: %w", batch, p.Removed, schema.ErrRecovered))
	case batch < p.Batch: // changed between the two looks
		return schema.RemoveResult{}, wrap("remove rows", schema.ErrRetryTransaction)
	}
	return schema.RemoveResult{Done: true}, nil
}

func (s *Store) ledger(ctx context.Context, ref schema.ShardRef) (owner string, batch int64, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT owner, batch FROM millbridge_shards WHERE stream = ? AND generation = ? AND shard = ?",
		string(ref.Stream), ref.Generation, ref.Shard).Scan(&owner, &batch)
	if errors.Is(err, sql.ErrNoRows) {
		err = schema.WithKind(schema.Permanent, fmt.Errorf("shard %s/%d/%d: %w", ref.Stream, ref.Generation, ref.Shard, schema.ErrNotFound))
	}
	return owner, batch, err
}
