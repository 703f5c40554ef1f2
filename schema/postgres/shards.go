package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

const shardColumns = `stream, generation, shard, owner,
	(extract(epoch FROM greatest(lease_until, timestamptz 'epoch') - clock_timestamp()) * 1000000)::bigint,
	ledger_owner, batch, total, cursor_seq, updated_at`

func scanShard(rows rowSet) (schema.Shard, error) {
	var sh schema.Shard
	var stream string
	var left, cursor int64
	err := rows.Scan(&stream, &sh.Generation, &sh.Shard, &sh.Owner, &left, &sh.LedgerOwner, &sh.Batch, &sh.Total, &cursor, &sh.UpdatedAt)
	sh.Stream = schema.Stream(stream)
	sh.LeaseLeft = max(0, time.Duration(left)*time.Microsecond)
	sh.CursorSeq, sh.UpdatedAt = uint64(cursor), sh.UpdatedAt.UTC()
	return sh, err
}

// Shards returns the shards of a stream's current generation with their leases and ledgers.
func (s *Store) Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error) {
	var shards []schema.Shard
	err := pgxRunner{s.pool}.run(ctx, statement{sql: `
		SELECT ` + shardColumns + ` FROM millbridge.shards
		 WHERE stream = $1::text
		   AND generation = (SELECT CASE $1::text WHEN 'jobs' THEN jobs_generation ELSE events_generation END FROM millbridge.meta)
		 ORDER BY shard`, args: []any{string(stream)}, each: func(rows rowSet) error {
		sh, err := scanShard(rows)
		shards = append(shards, sh)
		return err
	}})
	return shards, wrap("read shards", err)
}

// Acquire takes the lease of a shard if it is free, has ended or is the token's own. The token is kept, durably before
// Acquire returns, so that its cursors can be told from those of an owner this database knows nothing of. It returns
// the shard as it is now; ok is false if another owner has the lease. If the clock has gone back since the other has taken
// it, it lasts as long as it was taken for, from now on.
func (s *Store) Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (sh schema.Shard, ok bool, err error) {
	found := false
	args := []any{string(ref.Stream), ref.Generation, ref.Shard}
	err = pgxRunner{s.pool}.run(ctx, durably,
		statement{sql: `
			UPDATE millbridge.shards SET lease_until = clock_timestamp() + (lease_until - leased_at), leased_at = clock_timestamp()
			 WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer
			   AND leased_at > clock_timestamp() AND lease_until > clock_timestamp()`, args: args},
		statement{sql: `
			WITH mine AS (
				UPDATE millbridge.shards SET owner = $4::text, leased_at = clock_timestamp(), lease_until = clock_timestamp() + $5::bigint * interval '1 microsecond'
				 WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer
				   AND (owner IN ('', $4::text) OR lease_until <= clock_timestamp())
				RETURNING stream, generation, shard
			)
			INSERT INTO millbridge.owners (stream, generation, shard, token)
			SELECT stream, generation, shard, $4::text FROM mine
			ON CONFLICT (stream, generation, shard, token) DO NOTHING`, args: append(args, token, ttl.Microseconds())},
		statement{sql: `SELECT ` + shardColumns + ` FROM millbridge.shards
			WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer`, args: args, each: func(rows rowSet) error {
			found = true
			sh, err = scanShard(rows)
			return err
		}})
	switch {
	case err != nil:
		return schema.Shard{}, false, s.failed("acquire shard", err)
	case !found:
		return schema.Shard{}, false, fmt.Errorf("acquire shard %d of %s, generation %d: %w", ref.Shard, ref.Stream, ref.Generation, notFound())
	}
	return sh, sh.Owner == token, nil
}

// Renew extends the leases of all these tokens and returns those that still had one.
func (s *Store) Renew(ctx context.Context, tokens []string, ttl time.Duration) (held []string, err error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, `
		UPDATE millbridge.shards SET leased_at = clock_timestamp(), lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
		 WHERE owner = ANY ($1::text[]) RETURNING owner`, tokens, ttl.Microseconds())
	if err == nil {
		held, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return held, s.failed("renew leases", err)
}

// Release ends a lease before its time, so that another owner need not wait. The token stays the shard's owner until
// then.
func (s *Store) Release(ctx context.Context, token string) error {
	_, err := s.pool.Exec(ctx, `UPDATE millbridge.shards SET lease_until = '-infinity' WHERE owner = $1::text`, token)
	return wrap("release lease", err)
}

// KnownOwner reports whether this database has handed the shard out to the token, at or after the owner that the
// ledger names.
func (s *Store) KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error) {
	var known bool
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM millbridge.owners
		WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer AND token = $4::text)`,
		string(ref.Stream), ref.Generation, ref.Shard, token).Scan(&known)
	return known, wrap("look up owner", err)
}
