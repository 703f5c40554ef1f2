package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// purgeStep bounds how many old records one transaction deletes: the application waits for it as for any writer.
const purgeStep = 100

// Tend does the upkeep of the outbox: it moves scheduled messages that became due, moves rows behind the parked row of
// their ordering key, and forgets old idempotency keys, handled inbox records, ended sagas, leases and owners. Each step touches at most
// limit rows in a transaction of its own, and none is begun when there is nothing to do.
func (s *Store) Tend(ctx context.Context, limit int) (schema.TendResult, error) {
	if limit <= 0 {
		limit = schema.MaxBatchRows
	}
	var res schema.TendResult
	var err error
	if res.Moved, err = s.tendDue(ctx, limit); err != nil {
		return res, err
	}
	if res.Parked, err = s.tendFollowers(ctx, limit); err != nil {
		return res, err
	}
	res.More = max(res.Moved, res.Parked) >= limit
	step := min(limit, purgeStep)
	for _, purge := range s.purges(step) {
		n, err := s.tendPurge(ctx, purge)
		if err != nil {
			return res, err
		}
		res.More = res.More || n >= step
	}
	res.NextDue, err = s.nextDue(ctx)
	return res, err
}

// tendDue moves due messages in the order of their times.
func (s *Store) tendDue(ctx context.Context, limit int) (int, error) {
	due, err := s.exists(ctx, "SELECT 1 FROM millbridge_scheduled WHERE due_at <= ?", s.now())
	if err != nil || !due {
		return 0, wrap("look for due messages", err)
	}
	moved := 0
	err = s.update(ctx, "move due messages", func(tx *sql.Tx) error {
		seqs, err := collect(ctx, tx, scanSeq, "SELECT seq FROM millbridge_scheduled WHERE due_at <= ? ORDER BY due_at, seq LIMIT ?", s.now(), limit)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO millbridge_outbox ("+rowColumns+") SELECT "+rowColumns+` FROM millbridge_scheduled
			WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY due_at, seq`, list(seqs)); err != nil {
			return err
		}
		moved, err = affected(ctx, tx, "DELETE FROM millbridge_scheduled WHERE seq IN (SELECT value FROM json_each(?))", list(seqs))
		return err
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

func (s *Store) tendFollowers(ctx context.Context, limit int) (int, error) {
	found, err := s.exists(ctx, followers)
	if err != nil || !found {
		return 0, wrap("look for rows behind parked ones", err)
	}
	parked := 0
	err = s.update(ctx, "park rows behind parked ones", func(tx *sql.Tx) error {
		var err error
		parked, err = s.parkFollowers(ctx, tx, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return parked, nil
}

// A purge deletes rows that nobody needs any more.
type purge struct {
	what  string
	find  string // selects the keys of the rows
	table string
	key   string
	args  []any
	first string // what is to happen before, to the keys that find selects; may be empty
}

// ownerKeep is how long an owner is remembered after another has removed rows: one that stood still may write one more
// cursor after that.
const ownerKeep = 24 * time.Hour

// leaseKeep is how long a lease that nobody has renewed stays in its table.
const leaseKeep = time.Hour

// Settled jobs that are forgotten are added to what is only counted.
const (
	countPruned = "INSERT INTO millbridge_counts (what, name, n) SELECT 'pruned', handler, count(*) FROM "
	addCounts   = " GROUP BY handler ON CONFLICT (what, name) DO UPDATE SET n = n + excluded.n"
)

func (s *Store) purges(limit int) []purge {
	now := s.now()
	return []purge{
		{
			"idempotency keys", "SELECT key_hash FROM millbridge_keys WHERE used_at < ? LIMIT ?",
			"millbridge_keys", "key_hash",
			[]any{now - s.opts.Keep.Nanoseconds(), limit},
			"",
		},
		{
			"inbox records", "SELECT key_hash FROM millbridge_inbox WHERE since < ?1 AND updated_at < ?1 AND lease_until < ?2 ORDER BY since, key_hash LIMIT ?3",
			"millbridge_inbox", "key_hash",
			[]any{now - s.opts.Keep.Nanoseconds(), now, limit},
			countPruned + "millbridge_inbox WHERE state <> 'running' AND stream_seq > 0 AND key_hash IN (%s)" + addCounts,
		},
		{
			"settled messages", "SELECT message_id, stream_seq FROM millbridge_settled WHERE settled_at < ? ORDER BY settled_at, message_id, stream_seq LIMIT ?",
			"millbridge_settled", "(message_id, stream_seq)",
			[]any{now - s.opts.Keep.Nanoseconds(), limit},
			countPruned + "millbridge_settled WHERE stream_seq > 0 AND (message_id, stream_seq) IN (%s)" + addCounts,
		},
		{
			"owners", `SELECT o.number FROM millbridge_shards AS s
				JOIN millbridge_owners AS l ON l.stream = s.stream AND l.generation = s.generation AND l.shard = s.shard AND l.token = s.ledger_owner
				JOIN millbridge_owners AS o ON o.stream = s.stream AND o.generation = s.generation AND o.shard = s.shard AND o.number < l.number
				WHERE o.acquired_at < ? LIMIT ?`,
			"millbridge_owners", "number",
			[]any{now - ownerKeep.Nanoseconds(), limit},
			"",
		},
		{
			"leases", "SELECT name FROM millbridge_leases WHERE lease_until < ? LIMIT ?",
			"millbridge_leases", "name",
			[]any{now - leaseKeep.Nanoseconds(), limit},
			"",
		},
		{
			"sagas", `SELECT saga, id FROM millbridge_sagas WHERE status IN ('done', 'compensated') AND updated_at < ?
				ORDER BY updated_at, saga, id LIMIT ?`,
			"millbridge_sagas", "(saga, id)",
			[]any{now - s.opts.Keep.Nanoseconds(), limit},
			"DELETE FROM millbridge_saga_events WHERE (saga, id) IN (%s)",
		},
	}
}

func (s *Store) tendPurge(ctx context.Context, p purge) (n int, err error) {
	found, err := s.exists(ctx, p.find, p.args...)
	if err != nil || !found {
		return 0, wrap("look for old "+p.what, err)
	}
	err = s.update(ctx, "purge old "+p.what, func(tx *sql.Tx) (err error) {
		if p.first != "" {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(p.first, p.find), p.args...); err != nil {
				return err
			}
		}
		n, err = affected(ctx, tx, "DELETE FROM "+p.table+" WHERE "+p.key+" IN ("+p.find+")", p.args...)
		return err
	})
	return n, err
}

// exists asks a reading connection, so that an idle Tend writes nothing.
func (s *Store) exists(ctx context.Context, query string, args ...any) (bool, error) {
	var yes bool
	err := s.read.QueryRowContext(ctx, "SELECT EXISTS ("+query+")", args...).Scan(&yes)
	return yes, err
}

func (s *Store) nextDue(ctx context.Context) (time.Duration, error) {
	var due sql.NullInt64
	err := s.read.QueryRowContext(ctx, "SELECT min(due_at) FROM millbridge_scheduled").Scan(&due)
	if err != nil || !due.Valid {
		return 0, wrap("look for the next due message", err)
	}
	return time.Duration(max(due.Int64-s.now(), 1)), nil // 0 would say that there is none
}
