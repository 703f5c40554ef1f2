package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const shardColumns = "stream, generation, shard, owner, ledger_owner, batch, total, cursor_seq, updated_at"

func scanShard(rows *sql.Rows, sh *schema.Shard) error {
	var updated int64
	err := rows.Scan(&sh.Stream, &sh.Generation, &sh.Shard, &sh.Owner, &sh.LedgerOwner, &sh.Batch, &sh.Total, &sh.CursorSeq, &updated)
	sh.UpdatedAt = at(updated)
	return err
}

// Shards returns the ledger of one stream's current generation. There are no leases: LeaseLeft is always 0.
func (s *Store) Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error) {
	shards, err := collect(ctx, s.read, scanShard, "SELECT "+shardColumns+` FROM millbridge_shards
		WHERE stream = ?1 AND generation = (SELECT CASE ?1 WHEN 'jobs' THEN jobs_generation ELSE events_generation END FROM millbridge_meta)
		ORDER BY shard`, string(stream))
	return shards, wrap("read shards", err)
}

// Acquire makes token the owner of a shard and remembers that it was handed out. There is no lease: it takes the
// shard whoever had it, and answers false only while another process or store forwards this file.
func (s *Store) Acquire(ctx context.Context, ref schema.ShardRef, token string, _ time.Duration) (schema.Shard, bool, error) {
	ok, err := s.lockForwarder(ctx, ref, token)
	if err != nil || !ok {
		return schema.Shard{}, false, wrap("lock forwarder", err)
	}
	var shards []schema.Shard
	err = s.update(ctx, "acquire shard", func(tx *sql.Tx) error {
		now := s.now()
		var err error
		shards, err = collect(ctx, tx, scanShard, `UPDATE millbridge_shards SET owner = ?
			WHERE stream = ? AND generation = ? AND shard = ? RETURNING `+shardColumns,
			token, string(ref.Stream), ref.Generation, ref.Shard)
		if err != nil {
			return err
		}
		if len(shards) == 0 {
			return schema.WithKind(schema.Permanent, fmt.Errorf("shard %s/%d/%d: %w", ref.Stream, ref.Generation, ref.Shard, schema.ErrNotFound))
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO millbridge_owners (token, stream, generation, shard, acquired_at)
			VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING`, token, string(ref.Stream), ref.Generation, ref.Shard, now)
		return err
	})
	if err != nil {
		s.releaseForwarder(token)
		return schema.Shard{}, false, err
	}
	return shards[0], true, nil
}

// Renew returns those of tokens that still own a shard. There is no lease to renew, so nothing is written.
func (s *Store) Renew(ctx context.Context, tokens []string, _ time.Duration) ([]string, error) {
	held, err := collect(ctx, s.read, func(rows *sql.Rows, token *string) error { return rows.Scan(token) },
		"SELECT owner FROM millbridge_shards WHERE owner IN (SELECT value FROM json_each(?))", list(tokens))
	return held, wrap("renew leases", err)
}

// Release says that the owner has stopped; with the last one the store lets go of the forwarder's file lock.
func (s *Store) Release(_ context.Context, token string) error {
	s.releaseForwarder(token)
	return nil
}

// KnownOwner reports whether this database has handed out token for this shard.
func (s *Store) KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error) {
	var known bool
	err := s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM millbridge_owners
		WHERE stream = ? AND generation = ? AND shard = ? AND token = ?)`,
		string(ref.Stream), ref.Generation, ref.Shard, token).Scan(&known)
	return known, wrap("look up owner", err)
}
