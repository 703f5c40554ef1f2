package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A record is an inbox row with its lease.
type record struct {
	schema.InboxRecord
	leaseUntil int64
}

const recordColumns = `handler, state, message_id, body_hash, attempts, deliveries, replay, cause, last_error,
	coalesce(lease_owner, ''), lease_until, next_try, updated_at`

func scanRecord(rows *sql.Rows, r *record) error {
	var body []byte
	var next, updated int64
	err := rows.Scan(&r.Key.Handler, &r.State, &r.MessageID, &body, &r.Attempts, &r.Deliveries, &r.Replay, &r.Cause, &r.LastError,
		&r.LeaseOwner, &r.leaseUntil, &next, &updated)
	copy(r.BodyHash[:], body)
	r.NextTry, r.UpdatedAt = at(next), at(updated)
	return err
}

// lookup returns the record of a key; ok is false if there is none.
func lookup(ctx context.Context, q queryer, hash [32]byte) (rec record, ok bool, err error) {
	found, err := collect(ctx, q, scanRecord, "SELECT "+recordColumns+" FROM millbridge_inbox WHERE key_hash = ?", hash[:])
	if err != nil || len(found) == 0 {
		return record{}, false, err
	}
	return found[0], true, nil
}

// fresh is the record of a key that was never seen.
func fresh(run schema.Run) record {
	return record{InboxRecord: schema.InboxRecord{
		Key: run.Key, State: schema.InboxRunning, MessageID: run.MessageID, BodyHash: run.BodyHash, Replay: run.Replay,
	}}
}

// heldByOther reports whether a lease that has not ended belongs to another run.
func (r record) heldByOther(owner string, now int64) bool {
	return r.State == schema.InboxRunning && r.LeaseOwner != "" && r.LeaseOwner != owner && r.leaseUntil > now
}

// waits reports whether the next attempt is not due yet. The broker may hand a message out before that when it has not
// heard of the wait.
func (r record) waits(now int64) bool {
	return r.State == schema.InboxRunning && nanos(r.NextTry) > now
}

// wait is how long a busy key stays so at least.
func (r record) wait(now int64) time.Duration {
	return time.Duration(max(r.leaseUntil, nanos(r.NextTry)) - now)
}

// decide answers a run by the record of its key and, when it may run, makes the record the run's.
func (r record) decide(run schema.Run, now int64) (schema.Claim, record) {
	anyBody := r.BodyHash == [32]byte{} // made by a replay of a message that was never handled here
	sameMessage := r.MessageID == "" || r.MessageID == run.MessageID
	switch {
	case !anyBody && r.BodyHash != run.BodyHash:
		return schema.ClaimReused, r
	case run.Replay < r.Replay:
		return schema.ClaimSuperseded, r
	case r.heldByOther(run.Owner, now), r.waits(now):
		return schema.ClaimBusy, r
	case run.Replay > r.Replay:
		next := fresh(run)
		next.LastError = r.LastError // its history
		return schema.ClaimRun, next
	case r.State == schema.InboxDone, r.State == schema.InboxDropped, r.State == schema.InboxDead && !sameMessage:
		return schema.ClaimDone, r
	case r.State == schema.InboxDead:
		return schema.ClaimDead, r
	}
	r.Key = run.Key
	if !sameMessage {
		r.Deliveries = 0 // the broker counts per message
	}
	r.MessageID, r.BodyHash = run.MessageID, run.BodyHash
	return schema.ClaimRun, r
}

// claim decides a run in tx and, when it may run, records it in the given state.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, run schema.Run, state schema.InboxState) (schema.ClaimResult, error) {
	now := s.now()
	rec := fresh(run)
	mark := func(r *record) {
		r.LeaseOwner, r.leaseUntil = "", 0
		if state == schema.InboxRunning {
			r.LeaseOwner, r.leaseUntil = run.Owner, now+run.Lease.Nanoseconds()
		}
	}
	// The insert comes first: it takes the write lock before anything is read.
	mark(&rec)
	written, err := insertRecord(ctx, tx, run.Key.Hash(), rec, state, now)
	if err != nil {
		return schema.ClaimResult{}, err
	}
	if written {
		return schema.ClaimResult{Claim: schema.ClaimRun, Record: rec.InboxRecord}, nil
	}
	old, _, err := lookup(ctx, tx, run.Key.Hash())
	if err != nil {
		return schema.ClaimResult{}, err
	}
	claim, rec := old.decide(run, now)
	if claim != schema.ClaimRun {
		res := schema.ClaimResult{Claim: claim, Record: rec.InboxRecord}
		if claim == schema.ClaimBusy {
			res.Wait = rec.wait(now)
		}
		return res, nil
	}
	mark(&rec)
	if err := updateRecord(ctx, tx, run.Key.Hash(), rec, state, now); err != nil {
		return schema.ClaimResult{}, err
	}
	return schema.ClaimResult{Claim: schema.ClaimRun, Record: rec.InboxRecord}, nil
}

func insertRecord(ctx context.Context, tx *sql.Tx, hash [32]byte, r record, state schema.InboxState, now int64) (bool, error) {
	n, err := affected(ctx, tx, `INSERT INTO millbridge_inbox (key_hash, handler, state, message_id, body_hash, attempts, deliveries, replay,
			cause, last_error, lease_owner, lease_until, next_try, updated_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (key_hash) DO NOTHING`,
		hash[:], r.Key.Handler, string(state), r.MessageID, r.BodyHash[:], r.Attempts, int64(r.Deliveries), r.Replay,
		string(r.Cause), r.LastError, leaseOwner(r), r.leaseUntil, nanos(r.NextTry), now)
	return n > 0, err
}

func updateRecord(ctx context.Context, tx *sql.Tx, hash [32]byte, r record, state schema.InboxState, now int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE millbridge_inbox SET state = ?, message_id = ?, body_hash = ?, attempts = ?, deliveries = ?, replay = ?,
			cause = ?, last_error = ?, lease_owner = ?, lease_until = ?, next_try = ?, updated_at = ? WHERE key_hash = ?`,
		string(state), r.MessageID, r.BodyHash[:], r.Attempts, int64(r.Deliveries), r.Replay,
		string(r.Cause), r.LastError, leaseOwner(r), r.leaseUntil, nanos(r.NextTry), now, hash[:])
	return err
}

func leaseOwner(r record) any {
	if r.LeaseOwner == "" {
		return nil
	}
	return r.LeaseOwner
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Claim asks whether a run may handle its message, and if so keeps others out for run.Lease.
func (s *Store) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	var res schema.ClaimResult
	err := s.update(ctx, "claim message", func(tx *sql.Tx) error {
		var err error
		res, err = s.claim(ctx, tx, run, schema.InboxRunning)
		return err
	})
	if err != nil {
		return schema.ClaimResult{}, err
	}
	return res, nil
}

// ClaimTx asks the same in the handler's transaction and records the message as done: its commit is the handling. The
// transaction holds SQLite's write lock from here on, so no other run of the key can be between claim and commit.
func (s *Store) ClaimTx(ctx context.Context, tx *sql.Tx, run schema.Run) (schema.ClaimResult, error) {
	res, err := s.claim(ctx, tx, run, schema.InboxDone)
	return res, wrap("claim message", err)
}

// Done records that a claimed run has handled its message.
func (s *Store) Done(ctx context.Context, run schema.Run) error {
	hash := run.Key.Hash()
	return s.update(ctx, "record message as done", func(tx *sql.Tx) error {
		n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET state = 'done', lease_owner = NULL, lease_until = 0, next_try = 0, updated_at = ?
			WHERE key_hash = ? AND state = 'running' AND lease_owner = ? AND replay = ?`, s.now(), hash[:], run.Owner, run.Replay)
		if err == nil && n == 0 {
			return leaseLost()
		}
		return err
	})
}

// Fail records a failure of a run, ends its lease and returns the record. The run needs no claim: one in the handler's
// transaction was rolled back with it. [schema.ErrLeaseLost] if the message is in other hands or has been settled.
func (s *Store) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	var rec record
	err := s.update(ctx, "record failure", func(tx *sql.Tx) error {
		now := s.now()
		rec = fresh(run)
		rec.fail(f, now)
		written, err := insertRecord(ctx, tx, run.Key.Hash(), rec, rec.State, now)
		if err != nil || written {
			return err
		}
		old, _, err := lookup(ctx, tx, run.Key.Hash())
		if err != nil {
			return err
		}
		if rec = old; old.recorded(run, f) {
			return nil
		}
		var claim schema.Claim
		if claim, rec = old.decide(run, now); claim != schema.ClaimRun {
			return leaseLost()
		}
		rec.fail(f, now)
		return updateRecord(ctx, tx, run.Key.Hash(), rec, rec.State, now)
	})
	if err != nil {
		return schema.InboxRecord{}, err
	}
	return rec.InboxRecord, nil
}

// recorded reports whether this failure of this delivery is in the record already: the answer of the first call was lost.
func (r record) recorded(run schema.Run, f schema.Failure) bool {
	return r.State == schema.InboxRunning && !f.Dead && r.LeaseOwner == "" && r.Deliveries == f.Deliveries &&
		r.MessageID == run.MessageID && r.Replay == run.Replay && !r.NextTry.IsZero()
}

// fail enters a failure into the record.
func (r *record) fail(f schema.Failure, now int64) {
	if f.Attempted {
		r.Attempts++
	}
	r.Deliveries, r.LastError = f.Deliveries, schema.OneLine(f.Reason)
	r.LeaseOwner, r.leaseUntil = "", 0
	r.State, r.Cause, r.NextTry = schema.InboxRunning, "", at(now+f.RetryIn.Nanoseconds())
	if f.Dead {
		r.State, r.Cause, r.NextTry = schema.InboxDead, f.Cause, time.Time{}
	}
	r.UpdatedAt = at(now)
}

// Free ends the lease of a run that is stopped before its end and records nothing else.
func (s *Store) Free(ctx context.Context, run schema.Run) error {
	hash := run.Key.Hash()
	return s.update(ctx, "free message", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE millbridge_inbox SET lease_owner = NULL, lease_until = 0
			WHERE key_hash = ? AND state = 'running' AND lease_owner = ?`, hash[:], run.Owner)
		return err
	})
}

// Extend gives the runs of these owners that are still theirs another lease from now on, and returns those owners.
func (s *Store) Extend(ctx context.Context, owners []string, lease time.Duration) ([]string, error) {
	if len(owners) == 0 {
		return nil, nil
	}
	var held []string
	err := s.update(ctx, "extend leases", func(tx *sql.Tx) error {
		var err error
		held, err = collect(ctx, tx, func(rows *sql.Rows, owner *string) error { return rows.Scan(owner) },
			`UPDATE millbridge_inbox SET lease_until = ? WHERE lease_owner IN (SELECT value FROM json_each(?)) AND state = 'running'
			RETURNING lease_owner`, s.now()+lease.Nanoseconds(), list(owners))
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// LookupInbox returns what the inbox knows about a key; ok is false if nothing.
func (s *Store) LookupInbox(ctx context.Context, key schema.InboxKey) (rec schema.InboxRecord, ok bool, err error) {
	found, ok, err := lookup(ctx, s.read, key.Hash())
	if err != nil || !ok {
		return schema.InboxRecord{}, false, wrap("look up inbox", err)
	}
	shown := s.shown(found)
	shown.Key = key
	return shown, true, nil
}

// InboxByMessage returns the records, one per handler, of the message that was published with this id.
func (s *Store) InboxByMessage(ctx context.Context, messageID string) ([]schema.InboxRecord, error) {
	found, err := collect(ctx, s.read, scanRecord, "SELECT "+recordColumns+" FROM millbridge_inbox WHERE message_id = ? ORDER BY handler", messageID)
	if err != nil {
		return nil, wrap("look up inbox", err)
	}
	recs := make([]schema.InboxRecord, len(found))
	for i, r := range found {
		recs[i] = s.shown(r)
	}
	return recs, nil
}

// shown returns the record as others see it: a lease that has ended is nobody's.
func (s *Store) shown(r record) schema.InboxRecord {
	if r.leaseUntil <= s.now() {
		r.LeaseOwner = ""
	}
	return r.InboxRecord
}

// ResetForReplay prepares the record of a dead letter for its next delivery, in the transaction that publishes the
// replay: a fresh budget of attempts and the replay number from+1. It is false if the key is not dead at replay number
// from, which means that somebody was quicker. A key that was never handled here gets a record.
func (s *Store) ResetForReplay(ctx context.Context, tx *sql.Tx, key schema.InboxKey, from int) (bool, error) {
	hash, now := key.Hash(), s.now()
	n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET state = 'running', replay = ?, attempts = 0, deliveries = 0, cause = '',
			lease_owner = NULL, lease_until = 0, next_try = 0, updated_at = ?
		WHERE key_hash = ? AND state = 'dead' AND replay = ?`, from+1, now, hash[:], from)
	if err != nil || n > 0 {
		return n > 0, wrap("reset inbox for replay", err)
	}
	rec := record{InboxRecord: schema.InboxRecord{Key: key, Replay: from + 1}}
	written, err := insertRecord(ctx, tx, hash, rec, schema.InboxRunning, now)
	return written, wrap("reset inbox for replay", err)
}

// Drop turns a key that is dead at replay number from into a dropped one, in the transaction of the operator's command.
// It is false if somebody was quicker. A key that was never handled here gets a record.
func (s *Store) Drop(ctx context.Context, tx *sql.Tx, key schema.InboxKey, from int) (bool, error) {
	hash, now := key.Hash(), s.now()
	n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET state = 'dropped', updated_at = ?
		WHERE key_hash = ? AND state = 'dead' AND replay = ?`, now, hash[:], from)
	if err != nil || n > 0 {
		return n > 0, wrap("drop dead letter", err)
	}
	rec := record{InboxRecord: schema.InboxRecord{Key: key, Replay: from}}
	written, err := insertRecord(ctx, tx, hash, rec, schema.InboxDropped, now)
	return written, wrap("drop dead letter", err)
}

// InboxCounts returns how many records each handler has in each state.
func (s *Store) InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error) {
	type count struct {
		handler string
		state   schema.InboxState
		rows    int64
	}
	found, err := collect(ctx, s.read, func(rows *sql.Rows, c *count) error { return rows.Scan(&c.handler, &c.state, &c.rows) },
		"SELECT handler, state, rows FROM millbridge_inbox_counts WHERE rows > 0")
	if err != nil {
		return nil, wrap("count inbox", err)
	}
	counts := make(map[string]map[schema.InboxState]int64)
	for _, c := range found {
		if counts[c.handler] == nil {
			counts[c.handler] = make(map[schema.InboxState]int64)
		}
		counts[c.handler][c.state] = c.rows
	}
	return counts, nil
}
