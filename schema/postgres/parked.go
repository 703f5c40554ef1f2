package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Park takes a row that can never be forwarded out of the outbox and keeps it whole with the reason. From then on
// readers leave out later rows of its ordering key; whoever has read some before must forget them. The owner must have
// the shard ([schema.ErrLeaseLost]), and the row must still wait ([schema.ErrNotFound]).
func (s *Store) Park(ctx context.Context, p schema.ParkParams) error {
	var mine, parked int
	err := pgxRunner{s.pool}.run(ctx, byIndex, statement{
		sql: `
			WITH mine AS (
				SELECT FROM millbridge.shards
				 WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer AND owner = $4::text
				   FOR UPDATE
			), gone AS (
				DELETE FROM millbridge.outbox
				 WHERE stream = $1::text AND seq = $5::bigint AND id = $6::text::uuid AND EXISTS (SELECT FROM mine)
				RETURNING *
			), kept AS (
				INSERT INTO millbridge.parked (seq, created_at, order_lock, id, slot, behind, stream, subject, header, payload, reason)
				SELECT seq, created_at, order_lock, id, slot, false, stream, subject, header, payload, $7::text FROM gone
				RETURNING 1
			)
			SELECT (SELECT count(*) FROM mine), (SELECT count(*) FROM kept)`,
		args: []any{string(p.Stream), p.Generation, p.Shard, p.Owner, p.Name.Seq, p.Name.ID.String(), schema.OneLine(p.Reason)},
		each: scan(&mine, &parked),
	})
	switch {
	case err == nil && mine == 0:
		err = leaseLost()
	case err == nil && parked == 0:
		err = notFound()
	}
	return wrap("park row", err)
}

// ReleaseParked puts a parked row back into the outbox, with all rows of its ordering key: in order, under the key's
// lock and with new sequences. It returns their number.
func (s *Store) ReleaseParked(ctx context.Context, name schema.RowName) (n int, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		locks, err := lockParked(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := parkRest(ctx, tx, locks); err != nil {
			return err
		}
		if len(locks) == 0 { // without an ordering key
			n, err = putBack(ctx, tx, isParked, name.Seq, name.ID.String())
		} else {
			n, err = putBackKeys(ctx, tx, locks)
		}
		if err == nil && n == 0 { // somebody was quicker
			err = notFound()
		}
		return err
	})
	if err != nil {
		return 0, wrap(fmt.Sprintf("release parked row %d", name.Seq), err)
	}
	return n, nil
}

// DropParked deletes a parked row. Rows that were only waiting behind it go back into the outbox.
func (s *Store) DropParked(ctx context.Context, name schema.RowName) error {
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		locks, err := lockParked(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := parkRest(ctx, tx, locks); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			WITH gone AS (DELETE FROM millbridge.parked WHERE `+isParked+` RETURNING stream)
			INSERT INTO millbridge.settled (stream_seq, message_id, handler) SELECT 0, $2::text, stream FROM gone
			ON CONFLICT (message_id, stream_seq) DO UPDATE SET settled_at = excluded.settled_at`, name.Seq, name.ID.String())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 { // somebody was quicker
			return notFound()
		}
		var free []int64
		for _, lock := range locks {
			var held bool
			err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM millbridge.parked WHERE order_lock = $1::bigint AND NOT behind)`, lock).Scan(&held)
			if err != nil {
				return err
			}
			if !held {
				free = append(free, lock)
			}
		}
		_, err = putBackKeys(ctx, tx, free)
		return err
	})
	return wrap(fmt.Sprintf("drop parked row %d", name.Seq), err)
}

// isParked is whether a parked row has this name. Ids alone are the publishers': two messages may have one in common.
const isParked = `seq = $1::bigint AND id = $2::text::uuid`

func notFound() error { return schema.WithKind(schema.Permanent, schema.ErrNotFound) }

// lockParked takes the lock of the parked row's ordering key, if it has one.
func lockParked(ctx context.Context, tx pgx.Tx, name schema.RowName) (locks []int64, err error) {
	locks = []int64{} // nil would be NULL
	var lock *int64
	err = tx.QueryRow(ctx, `SELECT order_lock FROM millbridge.parked WHERE `+isParked, name.Seq, name.ID.String()).Scan(&lock)
	switch {
	case noRows(err):
		return nil, notFound()
	case err != nil || lock == nil:
		return locks, err
	}
	locks = append(locks, *lock)
	_, err = tx.Exec(ctx, sqlOrderLocks, locks)
	return locks, err
}

// parkRest moves all rows that still wait in the outbox behind the parked row of their ordering key. Those are to come
// back with the others: after them, and with sequences that a reader has not passed by.
func parkRest(ctx context.Context, tx pgx.Tx, locks []int64) error {
	_, err := tx.Exec(ctx, sqlParkBehind, locks, int64(math.MaxInt64), int64(math.MaxInt64))
	return err
}

// putBackKeys returns all parked rows of these ordering keys to the outbox.
func putBackKeys(ctx context.Context, tx pgx.Tx, locks []int64) (int, error) {
	if len(locks) == 0 {
		return 0, nil
	}
	return putBack(ctx, tx, `order_lock = ANY ($1::bigint[])`, locks)
}

func putBack(ctx context.Context, tx pgx.Tx, where string, args ...any) (int, error) {
	tag, err := tx.Exec(ctx, `
		WITH x AS MATERIALIZED (SELECT pg_current_xact_id() AS id),
		gone AS (DELETE FROM millbridge.parked WHERE `+where+` RETURNING *)
		INSERT INTO millbridge.outbox (seq, created_at, order_lock, id, slot, stream, subject, header, payload)
		SELECT nextval('millbridge.outbox_seq'), r.created_at, r.order_lock, r.id, r.slot, r.stream, r.subject, r.header, r.payload
		  FROM (SELECT gone.* FROM x, gone WHERE x.id IS NOT NULL ORDER BY gone.seq) AS r`, args...)
	return int(tag.RowsAffected()), err
}

// sqlParkBehind moves at most $2 waiting rows of the locked ordering keys $1 behind their parked row, from among the
// first $3 that come after one. A row before the parked one of its key has been sent and waits for its removal, or is
// about to be sent: it stays.
const sqlParkBehind = `
	WITH behind AS MATERIALIZED (
		SELECT o.stream, o.seq, o.slot, o.id
		  FROM (SELECT order_lock, min(seq) AS seq FROM millbridge.parked WHERE order_lock = ANY ($1::bigint[]) GROUP BY order_lock) AS p
		  JOIN (SELECT stream, seq, slot, id, order_lock FROM millbridge.outbox
		         WHERE seq > (SELECT min(seq) FROM millbridge.parked WHERE order_lock = ANY ($1::bigint[]))
		         ORDER BY seq LIMIT $3::bigint) AS o ON o.order_lock = p.order_lock AND o.seq > p.seq
		 ORDER BY o.seq LIMIT $2::bigint
	), gone AS (
		DELETE FROM millbridge.outbox AS o USING behind AS b
		 WHERE o.stream = b.stream AND o.seq = b.seq AND o.slot = b.slot AND o.id = b.id
		RETURNING o.*
	)
	INSERT INTO millbridge.parked (seq, created_at, order_lock, id, slot, behind, stream, subject, header, payload, reason)
	SELECT seq, created_at, order_lock, id, slot, true, stream, subject, header, payload,
	       'waits behind a parked message of its ordering key'
	  FROM gone`
