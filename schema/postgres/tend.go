package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Tend does the upkeep: it moves scheduled messages that are due into the outbox, moves rows behind the parked row of
// their ordering key, and deletes what need not be kept any longer. Each step touches at most limit rows; ordering keys
// that a writer holds are left for the next time. Any number of processes may call it: one works, for the others there
// is nothing to do.
func (s *Store) Tend(ctx context.Context, limit int) (schema.TendResult, error) {
	var res schema.TendResult
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		var alone bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1::bigint)`, lockTend).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return nil
		}
		var err error
		if res.Moved, err = moveDue(ctx, tx, limit); err != nil {
			return err
		}
		res.Parked, err = parkBehind(ctx, tx, limit)
		return err
	})
	if err != nil {
		return res, wrap("tend outbox", err)
	}
	pruned, err := s.prune(ctx, limit)
	if err != nil {
		return res, wrap("tend outbox", err)
	}
	res.More = max(res.Moved, res.Parked, pruned) >= limit
	var next *int64
	err = s.pool.QueryRow(ctx, `SELECT (extract(epoch FROM min(due_at) - clock_timestamp()) * 1000000)::bigint FROM millbridge.scheduled`).Scan(&next)
	if err == nil && next != nil {
		res.NextDue = max(time.Duration(*next)*time.Microsecond, time.Millisecond)
	}
	return res, wrap("tend outbox", err)
}

// moveDue moves at most limit rows. As long as it meets ordering keys that writers hold, it looks again without these:
// they must not keep back what comes after them.
func moveDue(ctx context.Context, tx pgx.Tx, limit int) (moved int, err error) {
	busy := []int64{}
	for moved < limit {
		var n int
		var more []int64
		if err := tx.QueryRow(ctx, sqlMoveDue, limit-moved, busy).Scan(&n, &more); err != nil {
			return moved, err
		}
		moved += n
		if len(more) == 0 {
			break
		}
		busy = append(busy, more...)
	}
	return moved, nil
}

// sqlMoveDue takes rows in the order in which they are due. A key's lock is tried once, before the key's first row, so
// that no row overtakes another of its key.
const sqlMoveDue = `
	WITH x AS MATERIALIZED (SELECT pg_current_xact_id() AS id),
	due AS MATERIALIZED (
		SELECT id, seq, due_at, order_lock FROM millbridge.scheduled
		 WHERE due_at <= clock_timestamp() AND (order_lock IS NULL OR order_lock NOT IN (SELECT unnest($2::bigint[])))
		 ORDER BY due_at, seq LIMIT $1::bigint FOR UPDATE SKIP LOCKED
	), locks AS MATERIALIZED (
		SELECT n, pg_try_advisory_xact_lock(n) AS ok FROM (SELECT DISTINCT order_lock AS n FROM due WHERE order_lock IS NOT NULL OFFSET 0) AS d
	), gone AS (
		DELETE FROM millbridge.scheduled AS s
		 WHERE (s.id, s.seq) IN (SELECT due.id, due.seq FROM due LEFT JOIN locks ON locks.n = due.order_lock
		                          WHERE due.order_lock IS NULL OR locks.ok)
		RETURNING *
	), moved AS (
		INSERT INTO millbridge.outbox (seq, created_at, order_lock, id, slot, stream, subject, header, payload)
		SELECT nextval('millbridge.outbox_seq'), r.created_at, r.order_lock, r.id, r.slot, r.stream, r.subject, r.header, r.payload
		  FROM (SELECT gone.* FROM x, gone WHERE x.id IS NOT NULL ORDER BY gone.due_at, gone.seq) AS r
		RETURNING 1
	)
	SELECT (SELECT count(*) FROM moved), ARRAY(SELECT n FROM locks WHERE NOT ok)`

// lookBehind is how many waiting rows the upkeep looks at for rows of parked ordering keys, for each that it may move.
// What comes later is looked at when these have gone; readers leave it out until then.
const lookBehind = 10

// parkBehind moves rows of parked ordering keys whose lock is free, from among the first that wait.
func parkBehind(ctx context.Context, tx pgx.Tx, limit int) (int, error) {
	if err := (pgxRunner{tx}).run(ctx, byIndex); err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, `
		SELECT n FROM (
			SELECT DISTINCT o.order_lock AS n
			  FROM (SELECT order_lock, seq FROM millbridge.outbox
			         WHERE seq > (SELECT min(seq) FROM millbridge.parked WHERE order_lock IS NOT NULL)
			         ORDER BY seq LIMIT $2::bigint) AS o
			 WHERE EXISTS (SELECT FROM millbridge.parked AS p WHERE p.order_lock = o.order_lock AND p.seq < o.seq)
			 LIMIT $1::bigint) AS d
		 WHERE pg_try_advisory_xact_lock(n)`, limit, limit*lookBehind)
	if err != nil {
		return 0, err
	}
	locks, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(locks) == 0 {
		return 0, err
	}
	tag, err := tx.Exec(ctx, sqlParkBehind, locks, limit, limit*lookBehind)
	return int(tag.RowsAffected()), err
}

// prune deletes keys, finished inbox rows and ended sagas that are older than they need be, leases that are long over, and owners older than the one that the
// ledger names, a day later: an owner that stood still may write one more cursor after its successor has removed
// rows. Dead inbox rows stay as long as their dead letter can be replayed. It returns the largest number of rows of a
// kind that it has deleted.
func (s *Store) prune(ctx context.Context, limit int) (most int, err error) {
	keep := s.keep.Microseconds()
	var keys, inbox, settled, owners, leases, sagas int
	err = pgxRunner{s.pool}.run(ctx,
		statement{sql: `
			WITH old AS MATERIALIZED (
				SELECT hash FROM millbridge.keys WHERE created_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
				 ORDER BY created_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
			gone AS (DELETE FROM millbridge.keys AS k USING old WHERE k.hash = old.hash RETURNING 1)
			SELECT count(*) FROM gone`, args: []any{keep, limit}, each: scan(&keys)},
		statement{sql: `
			WITH old AS MATERIALIZED (
				SELECT hash FROM millbridge.inbox
				 WHERE since < clock_timestamp() - $1::bigint * interval '1 microsecond'
				   AND updated_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
				 ORDER BY since LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
			gone AS (DELETE FROM millbridge.inbox AS i USING old WHERE i.hash = old.hash
			         RETURNING i.handler, i.state <> 'running' AND i.stream_seq IS NOT NULL AS counts), ` + sqlCountGone + `
			SELECT count(*) FROM gone`, args: []any{keep, limit}, each: scan(&inbox)},
		statement{sql: `
			WITH old AS MATERIALIZED (
				SELECT message_id, stream_seq FROM millbridge.settled WHERE settled_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
				 ORDER BY settled_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
			gone AS (DELETE FROM millbridge.settled AS s USING old WHERE s.message_id = old.message_id AND s.stream_seq = old.stream_seq
			         RETURNING s.handler, s.stream_seq > 0 AS counts), ` + sqlCountGone + `
			SELECT count(*) FROM gone`, args: []any{keep, limit}, each: scan(&settled)},
		statement{sql: `
			WITH gone AS (DELETE FROM millbridge.owners WHERE n IN (
				SELECT o.n FROM millbridge.owners AS o
				  JOIN millbridge.shards AS s USING (stream, generation, shard)
				  JOIN millbridge.owners AS l USING (stream, generation, shard)
				 WHERE l.token = s.ledger_owner AND o.n < l.n AND o.acquired_at < clock_timestamp() - interval '1 day' LIMIT $1::bigint) RETURNING 1)
			SELECT count(*) FROM gone`, args: []any{limit}, each: scan(&owners)},
		pruneLeases(limit, &leases), pruneSagas(s.keep, limit, &sagas))
	return max(keys, inbox, settled, owners, leases, sagas), err
}

// sqlCountGone adds settled jobs that are forgotten to what is only counted.
const sqlCountGone = `counted AS (
				INSERT INTO millbridge.counts AS c (what, name, n)
				SELECT 'pruned', handler, count(*) FROM gone WHERE counts GROUP BY handler
				ON CONFLICT (what, name) DO UPDATE SET n = c.n + excluded.n)`
