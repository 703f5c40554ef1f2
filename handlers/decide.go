package handlers

import (
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Verdict says what becomes of a message after a run.
type Verdict uint8

const (
	Ack       Verdict = iota // handled
	Retry                    // again after a wait; counts as an attempt
	Dead                     // give up: dead letter
	Release                  // we stopped the run ourselves: again at once, leaves no mark
	Leave                    // somebody else has the message: write nothing
	Snoozed                  // again after a wait; costs no attempt, see [Snooze]
	Cancelled                // no longer wanted: done with, without a dead letter, see [Cancel]
)

// A Decision is a verdict with what is needed to carry it out.
type Decision struct {
	Verdict Verdict
	Wait    time.Duration // Retry and Snoozed: until the next attempt
	Cause   schema.Cause  // Dead and Cancelled
}

// maxRetryAfter bounds the wait that another system or a handler may ask for.
const maxRetryAfter = 24 * time.Hour

// Decide says what becomes of a message whose attempt-th run (1 for the first) ended with err. id is the message's and
// seeds the jitter.
func Decide(policy schema.RetryPolicy, attempt int, id string, err error) Decision {
	if err == nil {
		return Decision{Verdict: Ack}
	}
	switch schema.KindOf(err) {
	case schema.Permanent:
		if schema.IsCancel(err) {
			return Decision{Verdict: Cancelled, Cause: schema.CauseCancelled}
		}
		return Decision{Verdict: Dead, Cause: schema.CausePermanent}
	case schema.Shutdown:
		return Decision{Verdict: Release}
	case schema.NotMine:
		return Decision{Verdict: Leave}
	}
	if wait, ok := schema.SnoozeOf(err); ok {
		return Decision{Verdict: Snoozed, Wait: min(wait, maxRetryAfter)}
	}
	if policy.Exhausted(attempt) {
		return Decision{Verdict: Dead, Cause: schema.CauseExhausted}
	}
	if wait, ok := schema.RetryAfterOf(err); ok {
		return Decision{Verdict: Retry, Wait: min(wait, maxRetryAfter)}
	}
	return Decision{Verdict: Retry, Wait: policy.Delay(attempt, id)}
}
