package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Claim asks for a run under a lease. If the answer is [schema.ClaimRun], no other run of the key gets that answer until
// the lease has ended; see [Store.Extend], [Store.Done], [Store.Fail] and [Store.Free].
func (s *Store) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	res, err := claim(ctx, s.pool, run, schema.InboxRunning)
	return res, s.failed("claim key", err)
}

// ClaimTx asks for a run in the handler's own transaction. If the answer is [schema.ClaimRun], the key is noted as done
// and commits with the handler's work; no other run of the key gets that answer while the transaction is open. It never
// waits for another run.
//
// The transaction should be at READ COMMITTED. At REPEATABLE READ and above, a record that was written since the
// transaction's snapshot gives [schema.ErrRetryTransaction].
func (s *Store) ClaimTx(ctx context.Context, tx pgx.Tx, run schema.Run) (schema.ClaimResult, error) {
	res, err := claim(ctx, tx, run, schema.InboxDone)
	return res, wrap("claim key", err)
}

// sqlClaim writes the record if the run may go ahead by what classify says; both must agree. The lock keeps it from
// waiting for another transaction that has written the record.
const sqlClaim = `
	INSERT INTO millbridge.inbox AS i (hash, handler, message_id, body_hash, replay, state, owner, lease_until, stream_seq)
	SELECT $1::bytea, $2::text, $3::text, $4::bytea, $5::integer, $6::text, nullif($7::text, ''),
	       CASE WHEN $7::text <> '' THEN clock_timestamp() + $8::bigint * interval '1 microsecond' END, nullif($10::bigint, 0)
	  FROM (SELECT pg_try_advisory_xact_lock($9::bigint) AS ok) AS lock
	 WHERE lock.ok
	ON CONFLICT (hash) DO UPDATE
	   SET state = excluded.state, owner = excluded.owner, lease_until = excluded.lease_until, updated_at = clock_timestamp(),
	       attempts = CASE WHEN i.replay < excluded.replay THEN 0 ELSE i.attempts END,
	       deliveries = CASE WHEN i.replay < excluded.replay OR i.message_id <> excluded.message_id THEN 0 ELSE i.deliveries END,
	       message_id = excluded.message_id, body_hash = excluded.body_hash, replay = excluded.replay,
	       cause = '', next_try = NULL, stream_seq = excluded.stream_seq
	 WHERE ` + sqlMayRun + `
	RETURNING ` + inboxColumns

// sqlMayRun is whether the recorded key i may be run by excluded, whose owner is $7.
const sqlMayRun = `i.body_hash IN ('', excluded.body_hash)
	   AND (i.replay < excluded.replay OR i.replay = excluded.replay AND i.state = 'running')
	   AND NOT (i.state = 'running' AND coalesce(i.owner <> $7::text AND i.lease_until > clock_timestamp(), false))
	   AND NOT (i.state = 'running' AND coalesce(i.next_try > clock_timestamp(), false)
	            AND i.updated_at <= clock_timestamp()) -- else the clock has gone back since: what was to be waited for is over`

func claim(ctx context.Context, to batchSender, run schema.Run, state schema.InboxState) (schema.ClaimResult, error) {
	hash := run.Key.Hash()
	owner, lease := run.Owner, run.Lease.Microseconds()
	if state == schema.InboxDone {
		owner, lease = "", 0 // the transaction is what keeps others out
	}
	var written, found bool
	var record schema.InboxRecord
	var wait time.Duration
	read := func(mark *bool) func(rowSet) error {
		return func(rows rowSet) (err error) {
			*mark = true
			record, wait, err = scanInbox(rows)
			return err
		}
	}
	err := pgxRunner{to}.run(ctx,
		statement{sql: sqlClaim, each: read(&written), args: []any{
			hash[:], run.Key.Handler, run.MessageID, run.BodyHash[:], run.Replay, string(state), owner, lease, lockOf(hash), int64(run.Sequence),
		}},
		statement{sql: sqlLookup, each: read(&found), args: []any{hash[:]}})
	if err != nil {
		return schema.ClaimResult{}, err
	}
	record.Key = run.Key
	if written {
		return schema.ClaimResult{Claim: schema.ClaimRun, Record: record}, nil
	}
	answer := schema.ClaimBusy // another transaction is about to write the first record
	if found {
		answer = classify(record, run)
	}
	if answer != schema.ClaimBusy {
		wait = 0
	}
	return schema.ClaimResult{Claim: answer, Record: record, Wait: wait}, nil
}

// classify answers a run that may not go ahead.
func classify(r schema.InboxRecord, run schema.Run) schema.Claim {
	same := r.MessageID == "" || r.MessageID == run.MessageID
	switch {
	case r.BodyHash != run.BodyHash && r.BodyHash != [32]byte{}: // none: made by a replay of a message that nobody handled
		return schema.ClaimReused
	case run.Replay < r.Replay:
		return schema.ClaimSuperseded
	case run.Replay > r.Replay || r.State == schema.InboxRunning:
		return schema.ClaimBusy
	case r.State == schema.InboxDead && same:
		return schema.ClaimDead
	}
	return schema.ClaimDone
}

// lockOf returns the number of the lock that a claim holds until its transaction ends.
func lockOf(hash [32]byte) int64 { return int64(binary.BigEndian.Uint64(hash[:8])) }

const inboxColumns = `i.handler, i.state, i.message_id, i.body_hash, i.attempts, i.deliveries, i.replay, i.cause, i.last_error,
	coalesce(CASE WHEN i.lease_until > clock_timestamp() THEN i.owner END, ''), i.next_try, i.updated_at, coalesce(i.stream_seq, 0),
	(extract(epoch FROM greatest(CASE WHEN i.owner IS NOT NULL THEN i.lease_until END, i.next_try) - clock_timestamp()) * 1000000)::bigint`

const sqlLookup = `SELECT ` + inboxColumns + ` FROM millbridge.inbox AS i WHERE i.hash = $1::bytea`

// scanInbox reads a record and how long it keeps others from running.
func scanInbox(rows rowSet) (schema.InboxRecord, time.Duration, error) {
	var r schema.InboxRecord
	var state, cause string
	var body []byte
	var deliveries, sequence int64
	var next *time.Time
	var wait *int64
	err := rows.Scan(&r.Key.Handler, &state, &r.MessageID, &body, &r.Attempts, &deliveries, &r.Replay, &cause, &r.LastError,
		&r.LeaseOwner, &next, &r.UpdatedAt, &sequence, &wait)
	if err != nil {
		return r, 0, err
	}
	if len(body) != 0 && len(body) != len(r.BodyHash) {
		return r, 0, fmt.Errorf("inbox row has a body hash of %d bytes", len(body))
	}
	copy(r.BodyHash[:], body)
	r.State, r.Cause, r.Deliveries = schema.InboxState(state), schema.Cause(cause), uint64(deliveries)
	r.Sequence = uint64(sequence)
	if next != nil {
		r.NextTry = *next
	}
	if wait == nil {
		return r, 0, nil
	}
	return r, max(0, time.Duration(*wait)*time.Microsecond), nil
}
