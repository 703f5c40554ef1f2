package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

// Done notes that a run under a lease has handled its message. [schema.ErrLeaseLost] means that another run has taken
// over.
func (s *Store) Done(ctx context.Context, run schema.Run) error {
	return s.failed("note key as done", done(ctx, s.atOnce, run, durably))
}

// done notes it after the statements of before, in one round trip.
func done(ctx context.Context, do runFunc, run schema.Run, before ...statement) error {
	hash := run.Key.Hash()
	noted := false
	err := do(ctx, append(before, statement{
		sql: `
		UPDATE millbridge.inbox SET state = 'done', owner = NULL, lease_until = NULL, next_try = NULL, updated_at = clock_timestamp()
		 WHERE hash = $1::bytea AND owner = $2::text AND state = 'running' AND replay = $3::integer RETURNING true`,
		args: []any{hash[:], run.Owner, run.Replay}, each: scan(&noted),
	})...)
	if err == nil && !noted {
		err = leaseLost()
	}
	return err
}

// Fail notes a failed attempt or a verdict, ends the run's lease and returns the record. In transaction mode there may
// be no record yet; it is made. Noting the same failure of the same delivery again changes nothing. If the key has been
// settled, or another run or a later replay has it, nothing is written and the error is [schema.ErrLeaseLost]. Fail may
// wait for a run that is in a transaction of its own.
func (s *Store) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	record, err := fail(ctx, s.atOnce, run, f, durably)
	return record, s.failed("note failure", err)
}

// fail notes it after the statements of before, in one round trip.
func fail(ctx context.Context, do runFunc, run schema.Run, f schema.Failure, before ...statement) (schema.InboxRecord, error) {
	hash := run.Key.Hash()
	state, cause := f.State()
	attempts := 0
	if f.Attempted {
		attempts = 1
	}
	var written, found bool
	var record schema.InboxRecord
	read := func(mark *bool) func(rowSet) error {
		return func(rows rowSet) (err error) {
			*mark = true
			record, _, err = scanInbox(rows)
			return err
		}
	}
	err := do(ctx, append(before,
		statement{sql: sqlFail, each: read(&written), args: []any{
			hash[:], run.Key.Handler, run.MessageID, run.BodyHash[:], run.Replay, string(state), run.Owner, attempts,
			int64(f.Deliveries), string(cause), schema.OneLine(f.Reason), f.RetryIn.Microseconds(), int64(run.Sequence), f.Attempts,
		}},
		statement{sql: sqlLookup, each: read(&found), args: []any{hash[:]}})...)
	if err == nil && !written && !record.Records(run, f) {
		err = leaseLost()
	}
	if err != nil {
		return schema.InboxRecord{}, err
	}
	record.Key = run.Key
	return record, nil
}

var sqlFail = `
	INSERT INTO millbridge.inbox AS i (hash, since, handler, message_id, body_hash, replay, state, attempts, deliveries, cause, last_error, next_try, stream_seq)
	VALUES ($1::bytea, CASE $6::text WHEN 'dead' THEN 'infinity' ELSE clock_timestamp() END, $2::text, $3::text, $4::bytea, $5::integer, $6::text, $8::integer, $9::bigint, $10::text, $11::text,
	        CASE WHEN $6::text = 'running' THEN clock_timestamp() + $12::bigint * interval '1 microsecond' END, nullif($13::bigint, 0))
	ON CONFLICT (hash) DO UPDATE
	   SET state = excluded.state, owner = NULL, lease_until = NULL, updated_at = clock_timestamp(),
	       since = CASE WHEN 'dead' IN (excluded.state, i.state) THEN excluded.since ELSE i.since END,
	       attempts = CASE WHEN i.replay < excluded.replay THEN 0 ELSE i.attempts END + excluded.attempts,
	       deliveries = excluded.deliveries, message_id = excluded.message_id, body_hash = excluded.body_hash,
	       replay = excluded.replay, cause = excluded.cause, last_error = excluded.last_error, next_try = excluded.next_try,
	       stream_seq = excluded.stream_seq
	 WHERE ` + mayRun("$7::text") + `
	   AND NOT (i.state = excluded.state AND i.owner IS NULL AND i.deliveries = excluded.deliveries AND i.next_try IS NOT NULL
	            AND i.attempts >= $14::integer + excluded.attempts -- see InboxRecord.Records
	            AND i.message_id = excluded.message_id AND i.replay = excluded.replay)
	RETURNING ` + inboxColumns

// Free ends a run's lease and notes nothing else. It does nothing if the run has none.
func (s *Store) Free(ctx context.Context, run schema.Run) error {
	hash := run.Key.Hash()
	return wrap("free key", s.atOnce(ctx, statement{sql: `
		UPDATE millbridge.inbox SET owner = NULL, lease_until = NULL
		 WHERE hash = $1::bytea AND owner = $2::text AND state = 'running'`, args: []any{hash[:], run.Owner}}))
}

// Extend lengthens the leases of these runs, counted from now, and returns the owners that still had one.
func (s *Store) Extend(ctx context.Context, runs []schema.Run, lease time.Duration) (held []string, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	a := arraysOf(runs)
	err = s.atOnce(ctx, byIndex, statement{
		// Rows are locked in the order in which groups lock them.
		sql: `
		WITH mine AS MATERIALIZED (
			SELECT i.hash FROM unnest($1::bytea[], $2::text[]) AS r(hash, owner)
			  JOIN millbridge.inbox AS i ON i.hash = r.hash AND i.owner = r.owner AND i.state = 'running'
			 ORDER BY i.hash FOR UPDATE OF i)
		UPDATE millbridge.inbox AS i SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
		  FROM mine WHERE i.hash = mine.hash RETURNING i.owner`,
		args: []any{a.hashes, a.owners, lease.Microseconds()},
		each: func(rows rowSet) error {
			var owner string
			err := rows.Scan(&owner)
			held = append(held, owner)
			return err
		},
	})
	return held, s.failed("extend leases", err)
}

// LookupInbox returns what is known about a key.
func (s *Store) LookupInbox(ctx context.Context, key schema.InboxKey) (record schema.InboxRecord, found bool, err error) {
	hash := key.Hash()
	err = pgxRunner{s.pool}.run(ctx, statement{sql: sqlLookup, args: []any{hash[:]}, each: func(rows rowSet) (err error) {
		found = true
		record, _, err = scanInbox(rows)
		return err
	}})
	record.Key = key
	return record, found, wrap("look up key", err)
}

// InboxByMessage returns what all handlers know about a message. Only the handler's name is set in the keys.
func (s *Store) InboxByMessage(ctx context.Context, messageID string) ([]schema.InboxRecord, error) {
	var records []schema.InboxRecord
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql:  `SELECT ` + inboxColumns + ` FROM millbridge.inbox AS i WHERE i.message_id = $1::text ORDER BY i.handler, i.hash`,
		args: []any{messageID},
		each: func(rows rowSet) error {
			r, _, err := scanInbox(rows)
			records = append(records, r)
			return err
		},
	})
	return records, wrap("look up message in inbox", err)
}

// ResetForReplay takes a key that died at replay number from back into work, in the caller's transaction: running, with
// the next replay number and no attempts. ok is false if somebody was quicker. Without a record it makes one: dead
// letters of foreign messages have none.
func (s *Store) ResetForReplay(ctx context.Context, tx pgx.Tx, key schema.InboxKey, from int) (ok bool, err error) {
	ok, err = leaveDead(ctx, tx, key, from, schema.InboxRunning, from+1)
	return ok, wrap("reset key for replay", err)
}

// Drop turns a key that died at replay number from into a dropped one, in the caller's transaction. ok is false if
// somebody was quicker. Without a record it makes one.
func (s *Store) Drop(ctx context.Context, tx pgx.Tx, key schema.InboxKey, from int) (ok bool, err error) {
	ok, err = leaveDead(ctx, tx, key, from, schema.InboxDropped, from)
	return ok, wrap("drop key", err)
}

func leaveDead(ctx context.Context, tx pgx.Tx, key schema.InboxKey, from int, state schema.InboxState, replay int) (bool, error) {
	hash := key.Hash()
	n := 0
	err := pgxRunner{tx}.run(ctx, durably,
		// Claims find the key busy until the caller's transaction ends, in place of waiting for it.
		statement{sql: `SELECT count(pg_advisory_xact_lock($1::bigint))`, args: []any{lockOf(hash)}},
		// What the row knew of the life that has ended is kept beside it.
		statement{sql: `
			INSERT INTO millbridge.settled (stream_seq, message_id, handler)
			SELECT stream_seq, message_id, handler FROM millbridge.inbox
			 WHERE hash = $1::bytea AND state = 'dead' AND replay = $2::integer AND $3::text = 'running' AND stream_seq IS NOT NULL
			ON CONFLICT DO NOTHING`, args: []any{hash[:], from, string(state)}},
		statement{
			sql: `
			WITH written AS (
				INSERT INTO millbridge.inbox AS i (hash, handler, message_id, body_hash, state, replay)
				VALUES ($1::bytea, $2::text, '', '', $4::text, $5::integer)
				ON CONFLICT (hash) DO UPDATE
				   SET state = excluded.state, replay = excluded.replay, updated_at = clock_timestamp(), since = clock_timestamp(),
				       attempts = CASE excluded.state WHEN 'running' THEN 0 ELSE i.attempts END,
				       deliveries = CASE excluded.state WHEN 'running' THEN 0 ELSE i.deliveries END,
				       cause = CASE excluded.state WHEN 'running' THEN '' ELSE i.cause END,
				       stream_seq = CASE excluded.state WHEN 'running' THEN NULL ELSE i.stream_seq END
				 WHERE i.state = 'dead' AND i.replay = $3::integer
				RETURNING 1
			)
			SELECT count(*) FROM written`,
			args: []any{hash[:], key.Handler, from, string(state), replay}, each: scan(&n),
		})
	return n == 1, err
}

// InboxCounts counts the keys by handler and state.
func (s *Store) InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error) {
	counts := make(map[string]map[schema.InboxState]int64)
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT handler, state, count(*) FROM millbridge.inbox GROUP BY handler, state`,
		each: func(rows rowSet) error {
			var handler, state string
			var n int64
			if err := rows.Scan(&handler, &state, &n); err != nil {
				return err
			}
			if counts[handler] == nil {
				counts[handler] = make(map[schema.InboxState]int64)
			}
			counts[handler][schema.InboxState(state)] = n
			return nil
		},
	})
	return counts, wrap("count inbox", err)
}
