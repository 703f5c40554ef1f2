package schema

import "time"

// An InboxRow is an inbox record with the end of its lease, for inboxes that decide in the program what a run may do.
// All times are by the inbox's own clock.
type InboxRow struct {
	InboxRecord
	LeaseUntil time.Time
}

// NewInboxRow is the row of a key that was never seen.
func NewInboxRow(run Run) InboxRow {
	return InboxRow{InboxRecord: InboxRecord{
		Key: run.Key, State: InboxRunning, MessageID: run.MessageID, BodyHash: run.BodyHash, Replay: run.Replay, Sequence: run.Sequence,
	}}
}

// Answer answers a run by the row of its key.
func (r InboxRow) Answer(run Run, now time.Time) ClaimResult {
	res := ClaimResult{Claim: r.decide(run, now), Record: r.InboxRecord}
	switch res.Claim {
	case ClaimRun:
		res.Record = r.adopt(run).InboxRecord
	case ClaimBusy:
		until := r.LeaseUntil
		if r.NextTry.After(until) {
			until = r.NextTry
		}
		res.Wait = until.Sub(now)
	}
	return res
}

func (r InboxRow) decide(run Run, now time.Time) Claim {
	switch {
	case r.otherContent(run):
		return ClaimReused
	case run.Replay < r.Replay:
		return ClaimSuperseded
	case r.State == InboxRunning && r.busy(run.Owner, now):
		return ClaimBusy
	case run.Replay > r.Replay || r.State == InboxRunning:
		return ClaimRun
	case r.State == InboxDead && !r.otherMessage(run):
		return ClaimDead
	}
	return ClaimDone // also when it died as another message, whose letter stands for it
}

// otherContent reports whether the key belongs to a message that says something else. A row that a replay or a drop
// made for a message that was never handled here knows no content.
func (r InboxRow) otherContent(run Run) bool {
	return r.BodyHash != [32]byte{} && r.BodyHash != run.BodyHash
}

func (r InboxRow) otherMessage(run Run) bool {
	return r.MessageID != "" && r.MessageID != run.MessageID
}

// busy reports whether a lease that has not ended belongs to another run, or the next attempt is not due yet: the broker
// hands a message out before that when it has not heard of the wait.
func (r InboxRow) busy(owner string, now time.Time) bool {
	return r.LeaseOwner != "" && r.LeaseOwner != owner && r.LeaseUntil.After(now) ||
		r.NextTry.After(now) && !r.UpdatedAt.After(now) // else the clock has gone back since: what was to be waited for is over
}

// adopt makes the row the run's: with its history, or from the start for a later replay.
func (r InboxRow) adopt(run Run) InboxRow {
	next := NewInboxRow(run)
	next.LastError = r.LastError
	if run.Replay == r.Replay {
		next.Attempts = r.Attempts
		if !r.otherMessage(run) {
			next.Deliveries = r.Deliveries // the broker counts per message
		}
	}
	return next
}

// Start returns the row as a run that may go ahead takes it: under its lease, or done with already if state says so,
// because its transaction is what keeps others out.
func (r InboxRow) Start(run Run, state InboxState, now time.Time) InboxRow {
	next := r.adopt(run)
	next.State, next.UpdatedAt = state, now
	if state == InboxRunning {
		next.LeaseOwner, next.LeaseUntil = run.Owner, now.Add(run.Lease)
	}
	return next
}

// Fail returns the row with a failure of the run entered; ok is false if the run has nothing to enter here any more.
// Entering the failure of a delivery again changes nothing.
func (r InboxRow) Fail(run Run, f Failure, now time.Time) (next InboxRow, ok bool) {
	if r.Records(run, f) {
		return r, true
	}
	if r.decide(run, now) != ClaimRun {
		return r, false
	}
	next = r.adopt(run)
	if f.Attempted {
		next.Attempts++
	}
	next.Deliveries, next.LastError, next.UpdatedAt = f.Deliveries, OneLine(f.Reason), now
	if next.State, next.Cause = f.State(); next.State == InboxRunning {
		next.NextTry = now.Add(f.RetryIn)
	}
	return next, true
}

// Records reports whether this failure of this delivery is in the record already: the answer of the first call was lost.
// A run that has started again under a lease has no next try. The delivery's number alone does not tell: a consumer that
// was made anew gives it to another delivery, whose run then knows of all attempts that are there.
func (r InboxRecord) Records(run Run, f Failure) bool {
	state, _ := f.State()
	attempts := f.Attempts
	if f.Attempted {
		attempts++
	}
	return r.State == InboxRunning && state == InboxRunning && r.LeaseOwner == "" && !r.NextTry.IsZero() && r.Attempts >= attempts &&
		r.Deliveries == f.Deliveries && r.MessageID == run.MessageID && r.Replay == run.Replay
}

// State returns the state that a failure leaves its key in, with the cause if that is a verdict.
func (f Failure) State() (InboxState, Cause) {
	switch {
	case f.Dead:
		return InboxDead, f.Cause
	case f.Cancelled:
		return InboxDone, CauseCancelled
	}
	return InboxRunning, ""
}
