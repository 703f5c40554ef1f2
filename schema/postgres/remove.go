package postgres

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// Remove deletes exactly the named rows, which the stream is proven to have, and notes it in the shard's ledger. A named
// row that is among the scheduled ones again, because the database lost its last commits, is deleted there. When it
// returns, all is on disk. It does nothing if the ledger has this batch already (Done), and nothing but report
// [schema.ErrLeaseLost] if the shard belongs to another owner.
func (s *Store) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	seqs, ids := columns(p.Names)
	var updated, removed int
	shard := []any{string(p.Stream), p.Generation, p.Shard}
	err := pgxRunner{s.pool}.run(ctx, durablyByIndex, statement{
		sql: `
			WITH ledger AS (
				UPDATE millbridge.shards
				   SET batch = $5::bigint, total = $6::bigint, cursor_seq = $7::bigint, ledger_owner = $4::text, updated_at = clock_timestamp()
				 WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer AND owner = $4::text AND batch < $5::bigint AND batch >= $10::bigint
				RETURNING 1
			), gone AS (
				DELETE FROM millbridge.outbox AS o
				 USING unnest($8::bigint[], $9::uuid[]) AS n(seq, id)
				 WHERE o.stream = $1::text AND o.seq = n.seq AND o.id = n.id AND EXISTS (SELECT FROM ledger)
				RETURNING o.id
			), undone AS (
				-- A row that was gone may be one that a fail-over or restore has put back to where it waited for its time.
				DELETE FROM millbridge.scheduled AS s
				 USING unnest($9::uuid[]) AS n(id)
				 WHERE (SELECT count(*) FROM gone) < cardinality($9::uuid[]) AND EXISTS (SELECT FROM ledger)
				   AND s.stream = $1::text AND s.id = n.id AND NOT EXISTS (SELECT FROM gone WHERE gone.id = s.id)
			)
			SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM gone)`,
		args: append(shard, p.Owner, p.Batch, p.Total, int64(p.CursorSeq), seqs, ids, p.Removed),
		each: scan(&updated, &removed),
	})
	if err != nil {
		return schema.RemoveResult{}, s.failed("remove rows", err)
	}
	if updated == 1 {
		return schema.RemoveResult{Removed: removed, Vanished: len(p.Names) - removed}, nil
	}
	var owner string
	var batch int64
	err = s.pool.QueryRow(ctx, `SELECT owner, batch FROM millbridge.shards
		WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer`, shard...).Scan(&owner, &batch)
	switch {
	case noRows(err):
		err = fmt.Errorf("shard %d of %s, generation %d: %w", p.Shard, p.Stream, p.Generation, notFound())
	case err == nil && owner != p.Owner:
		err = leaseLost()
	case err == nil && batch < p.Removed:
		err = fmt.Errorf("the ledger says batch %d, want at least %d: %w", batch, p.Removed, schema.ErrRecovered)
	case err == nil && batch < p.Batch: // it was another's when we wrote and is ours again
		err = fmt.Errorf("the shard's owner has changed in between: %w", schema.ErrRetryTransaction)
	}
	return schema.RemoveResult{Done: err == nil}, wrap("remove rows", err)
}

func leaseLost() error { return schema.WithKind(schema.NotMine, schema.ErrLeaseLost) }

func columns(names []schema.RowName) (seqs []int64, ids uuids) {
	seqs, ids = make([]int64, len(names)), make(uuids, len(names))
	for i, n := range names {
		seqs[i], ids[i] = n.Seq, uuid(n.ID)
	}
	return seqs, ids
}
