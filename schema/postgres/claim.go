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
	res, err := claim(ctx, s.atOnce, run, schema.InboxRunning, durably)
	return res, s.failed("claim key", err)
}

// ClaimTx asks for a run in the handler's own transaction. If the answer is [schema.ClaimRun], the key is noted as done
// and commits with the handler's work; no other run of the key gets that answer while the transaction is open. It never
// waits for another run.
//
// The transaction's commit waits for the disk even where synchronous_commit is off: the message is acked after it, and would
// be lost with an effect that a crash undoes. The transaction should be at READ COMMITTED. At REPEATABLE READ and above, a
// record that was written since the transaction's snapshot gives [schema.ErrRetryTransaction].
func (s *Store) ClaimTx(ctx context.Context, tx pgx.Tx, run schema.Run) (schema.ClaimResult, error) {
	res, err := claimTx(ctx, pgxRunner{tx}.run, run)
	return res, wrap("claim key", err)
}

// claimTx tries first what costs half as much and is right for most: that the key is new, and that a commit is durable.
func claimTx(ctx context.Context, do runFunc, run schema.Run) (schema.ClaimResult, error) {
	hash := run.Key.Hash()
	isNew, weak := false, false
	res := schema.ClaimResult{Claim: schema.ClaimRun, Record: schema.InboxRecord{
		Key: run.Key, State: schema.InboxDone, MessageID: run.MessageID, BodyHash: run.BodyHash, Sequence: run.Sequence,
	}}
	if run.Replay == 0 {
		err := do(ctx, statement{
			sql:  sqlClaimNew,
			args: []any{hash[:], run.Key.Handler, run.MessageID, run.BodyHash[:], int64(run.Sequence), lockOf(hash)},
			each: func(rows rowSet) error {
				isNew = true
				err := rows.Scan(&res.Record.UpdatedAt, &weak)
				res.Record.UpdatedAt = res.Record.UpdatedAt.UTC()
				return err
			},
		})
		if err == nil && weak {
			err = do(ctx, durably)
		}
		if err != nil || isNew {
			return res, err
		}
	}
	return claim(ctx, do, run, schema.InboxDone, durably)
}

// sqlClaimNew notes a key as done that has no record, under the same lock as the claims below, and says whether the commit
// would not wait for the disk.
const sqlClaimNew = `
	INSERT INTO millbridge.inbox (hash, handler, message_id, body_hash, state, stream_seq)
	SELECT $1::bytea, $2::text, $3::text, $4::bytea, 'done', nullif($5::bigint, 0) WHERE pg_try_advisory_xact_lock($6::bigint)
	ON CONFLICT (hash) DO NOTHING RETURNING updated_at, ` + weakCommit

// sqlClaimMany and sqlClaimOne take the parts of runs; a set of one would cost as much again as the row.
var (
	sqlClaimMany = sqlClaim(`SELECT r.*, pg_try_advisory_xact_lock(r.lock) AS free
	          FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[], $5::integer[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[])
	               AS r(hash, handler, message_id, body_hash, replay, owner, lease, lock, seq)`)
	sqlClaimOne = sqlClaim(`SELECT $1::bytea AS hash, $2::text AS handler, $3::text AS message_id, $4::bytea AS body_hash, $5::integer AS replay,
	               $6::text AS owner, $7::bigint AS lease, $9::bigint AS seq, pg_try_advisory_xact_lock($8::bigint) AS free`)
)

// sqlClaim writes the records of the runs that may go ahead by what classify says; both must agree. The locks keep it
// from waiting for other transactions that have written the records.
func sqlClaim(runs string) string {
	return `
	INSERT INTO millbridge.inbox AS i (hash, handler, message_id, body_hash, replay, state, owner, lease_until, stream_seq)
	SELECT r.hash, r.handler, r.message_id, r.body_hash, r.replay, $10::text, nullif(r.owner, ''),
	       CASE WHEN r.owner <> '' THEN clock_timestamp() + r.lease * interval '1 microsecond' END, nullif(r.seq, 0)
	  FROM (` + runs + `) AS r
	 WHERE r.free
	ON CONFLICT (hash) DO UPDATE
	   SET state = excluded.state, owner = excluded.owner, lease_until = excluded.lease_until, updated_at = clock_timestamp(),
	       since = CASE WHEN i.state = 'dead' THEN excluded.since ELSE i.since END,
	       attempts = CASE WHEN i.replay < excluded.replay THEN 0 ELSE i.attempts END,
	       deliveries = CASE WHEN i.replay < excluded.replay OR i.message_id <> excluded.message_id THEN 0 ELSE i.deliveries END,
	       message_id = excluded.message_id, body_hash = excluded.body_hash, replay = excluded.replay,
	       cause = '', next_try = NULL, stream_seq = excluded.stream_seq
	 WHERE ` + mayRun("coalesce(excluded.owner, '')") + `
	RETURNING i.hash, i.attempts, i.deliveries, i.last_error, i.updated_at`
}

// mayRun is whether the recorded key i may be run by excluded, whose owner is given.
func mayRun(owner string) string {
	return `i.body_hash IN ('', excluded.body_hash)
	   AND (i.replay < excluded.replay OR i.replay = excluded.replay AND i.state = 'running')
	   AND NOT (i.state = 'running' AND coalesce(i.owner <> ` + owner + ` AND i.lease_until > clock_timestamp(), false))
	   AND NOT (i.state = 'running' AND coalesce(i.next_try > clock_timestamp(), false)
	            AND i.updated_at <= clock_timestamp()) -- else the clock has gone back since: what was to be waited for is over`
}

// claiming is the statement that claims runs of different keys; claimed gets the records of those that may go ahead, with
// their places among the runs.
func claiming(a runArrays, state schema.InboxState, claimed func(place int, record schema.InboxRecord)) statement {
	if state == schema.InboxDone { // the transaction is what keeps others out
		clear(a.owners)
		clear(a.leases)
	}
	index := a.index()
	sql, args := sqlClaimMany, []any{
		a.hashes, a.handlers, a.messageIDs, a.bodyHashes, a.replays, a.owners, a.leases, a.locks, a.sequences, string(state),
	}
	if len(a.runs) == 1 {
		sql, args = sqlClaimOne, []any{
			a.hashes[0], a.handlers[0], a.messageIDs[0], a.bodyHashes[0], a.replays[0], a.owners[0], a.leases[0], a.locks[0], a.sequences[0],
			string(state),
		}
	}
	return statement{
		sql: sql, args: args,
		each: func(rows rowSet) error {
			var hash []byte
			var deliveries int64
			var r schema.InboxRecord
			if err := rows.Scan(&hash, &r.Attempts, &deliveries, &r.LastError, &r.UpdatedAt); err != nil {
				return err
			}
			place := index[[32]byte(hash)]
			run := &a.runs[place]
			r.Key, r.State, r.MessageID, r.BodyHash, r.Replay = run.Key, state, run.MessageID, run.BodyHash, run.Replay
			r.Deliveries, r.Sequence, r.UpdatedAt = uint64(deliveries), run.Sequence, r.UpdatedAt.UTC()
			if state == schema.InboxRunning {
				r.LeaseOwner = run.Owner
			}
			claimed(place, r)
			return nil
		},
	}
}

// claim asks for a run after the statements of before, in one round trip.
func claim(ctx context.Context, do runFunc, run schema.Run, state schema.InboxState, before ...statement) (schema.ClaimResult, error) {
	written := false
	res := schema.ClaimResult{Claim: schema.ClaimRun}
	claimed := func(_ int, r schema.InboxRecord) { written, res.Record = true, r }
	err := do(ctx, append(before, claiming(arraysOf([]schema.Run{run}), state, claimed))...)
	if err != nil || written {
		return res, err
	}
	hash := run.Key.Hash()
	found := false
	err = do(ctx, statement{sql: sqlLookup, args: []any{hash[:]}, each: func(rows rowSet) (err error) {
		found = true
		res.Record, res.Wait, err = scanInbox(rows)
		return err
	}})
	if err != nil {
		return schema.ClaimResult{}, err
	}
	res.Record.Key = run.Key
	res.Claim = schema.ClaimBusy // another transaction is about to write the first record
	if found {
		res.Claim = classify(res.Record, run)
	}
	if res.Claim != schema.ClaimBusy {
		res.Wait = 0
	}
	return res, nil
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
	r.Sequence, r.UpdatedAt = uint64(sequence), r.UpdatedAt.UTC()
	if next != nil {
		r.NextTry = next.UTC()
	}
	if wait == nil {
		return r, 0, nil
	}
	return r, max(0, time.Duration(*wait)*time.Microsecond), nil
}
