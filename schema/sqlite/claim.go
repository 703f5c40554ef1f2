package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Claim asks whether a run may handle its message, and if so keeps others out for run.Lease; see [Store.Extend],
// [Store.Done], [Store.Fail] and [Store.Free].
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

// look answers a run without writing. Of the same key it may answer several that they may run.
func (s *Store) look(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	now := s.now()
	old, found, err := lookup(ctx, s.read, run.Key.Hash())
	switch {
	case err != nil:
		return schema.ClaimResult{}, wrap("claim message", err)
	case !found:
		old = fresh(run)
	}
	old.Key = run.Key
	return old.answer(run, now), nil
}

// answer is decide with the record that goes with it.
func (r record) answer(run schema.Run, now int64) schema.ClaimResult {
	res := schema.ClaimResult{Claim: r.decide(run, now), Record: r.InboxRecord}
	switch res.Claim {
	case schema.ClaimRun:
		res.Record = r.adopt(run).InboxRecord
	case schema.ClaimBusy:
		res.Wait = r.wait(now)
	}
	return res
}

// claim decides a run in tx and, when it may run, records it in the given state.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, run schema.Run, state schema.InboxState) (schema.ClaimResult, error) {
	now := s.now()
	start := func(r record) record {
		r.State, r.NextTry, r.UpdatedAt = state, time.Time{}, at(now)
		r.LeaseOwner, r.leaseUntil = "", 0
		if state == schema.InboxRunning {
			r.LeaseOwner, r.leaseUntil = run.Owner, now+run.Lease.Nanoseconds()
		}
		return r
	}
	// The insert comes first: it takes the write lock before anything is read.
	rec := start(fresh(run))
	written, err := insertRecord(ctx, tx, run.Key.Hash(), rec)
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
	old.Key = run.Key
	if res := old.answer(run, now); res.Claim != schema.ClaimRun {
		return res, nil
	}
	rec = start(old.adopt(run))
	if err := updateRecord(ctx, tx, run.Key.Hash(), rec); err != nil {
		return schema.ClaimResult{}, err
	}
	return schema.ClaimResult{Claim: schema.ClaimRun, Record: rec.InboxRecord}, nil
}

// fresh is the record of a key that was never seen.
func fresh(run schema.Run) record {
	return record{InboxRecord: schema.InboxRecord{
		Key: run.Key, State: schema.InboxRunning, MessageID: run.MessageID, BodyHash: run.BodyHash, Replay: run.Replay,
		Sequence: run.Sequence,
	}}
}

// decide answers a run by the record of its key.
func (r record) decide(run schema.Run, now int64) schema.Claim {
	switch {
	case r.otherContent(run):
		return schema.ClaimReused
	case run.Replay < r.Replay:
		return schema.ClaimSuperseded
	case r.State == schema.InboxRunning && r.busy(run.Owner, now):
		return schema.ClaimBusy
	case run.Replay > r.Replay || r.State == schema.InboxRunning:
		return schema.ClaimRun
	case r.State == schema.InboxDead && !r.otherMessage(run):
		return schema.ClaimDead
	}
	return schema.ClaimDone // also when it died as another message, whose letter stands for it
}

// otherContent reports whether the key belongs to a message that says something else. A record that a replay or a drop
// made for a message that was never handled here knows no content.
func (r record) otherContent(run schema.Run) bool {
	return r.BodyHash != [32]byte{} && r.BodyHash != run.BodyHash
}

func (r record) otherMessage(run schema.Run) bool {
	return r.MessageID != "" && r.MessageID != run.MessageID
}

// busy reports whether a lease that has not ended belongs to another run, or the next attempt is not due yet: the broker
// hands a message out before that when it has not heard of the wait.
func (r record) busy(owner string, now int64) bool {
	return r.LeaseOwner != "" && r.LeaseOwner != owner && r.leaseUntil > now || nanos(r.NextTry) > now && nanos(r.UpdatedAt) <= now // else the clock has gone back since: what was to be waited for is over
}

// wait is how long a busy key stays so.
func (r record) wait(now int64) time.Duration {
	return time.Duration(max(r.leaseUntil, nanos(r.NextTry)) - now)
}

// adopt makes the record the run's: with its history, or from the start for a later replay.
func (r record) adopt(run schema.Run) record {
	next := fresh(run)
	next.LastError = r.LastError
	if run.Replay == r.Replay {
		next.Attempts = r.Attempts
		if !r.otherMessage(run) {
			next.Deliveries = r.Deliveries // the broker counts per message
		}
	}
	return next
}

// Fail records a failure of a run, ends its lease and returns the record. The run needs no claim: one in the handler's
// transaction was rolled back with it. [schema.ErrLeaseLost] if the message is in other hands or has been settled.
func (s *Store) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	var rec record
	err := s.update(ctx, "record failure", func(tx *sql.Tx) error {
		now := s.now()
		rec = fresh(run).fail(f, now)
		written, err := insertRecord(ctx, tx, run.Key.Hash(), rec)
		if err != nil || written {
			return err
		}
		old, _, err := lookup(ctx, tx, run.Key.Hash())
		if err != nil {
			return err
		}
		old.Key = run.Key
		if rec = old; old.recorded(run, f) {
			return nil
		}
		if old.decide(run, now) != schema.ClaimRun {
			return leaseLost()
		}
		rec = old.adopt(run).fail(f, now)
		return updateRecord(ctx, tx, run.Key.Hash(), rec)
	})
	if err != nil {
		return schema.InboxRecord{}, err
	}
	return rec.InboxRecord, nil
}

// recorded reports whether this failure of this delivery is in the record already: the answer of the first call was
// lost. A run that has started again has no next try.
func (r record) recorded(run schema.Run, f schema.Failure) bool {
	return r.State == schema.InboxRunning && !f.Dead && r.LeaseOwner == "" && !r.NextTry.IsZero() &&
		r.Deliveries == f.Deliveries && r.MessageID == run.MessageID && r.Replay == run.Replay
}

// fail returns the record with a failure entered.
func (r record) fail(f schema.Failure, now int64) record {
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
	return r
}
