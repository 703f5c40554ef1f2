package handlers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millbridge/millbridge/schema"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	policy := schema.RetryPolicy{MaxAttempts: 3, Base: time.Second, Factor: 2, Max: time.Minute}
	cause := errors.New("boom")
	for name, c := range map[string]struct {
		attempt int
		err     error
		want    Decision
	}{
		"success":             {1, nil, Decision{Verdict: Ack}},
		"success at the end":  {3, nil, Decision{Verdict: Ack}},
		"first failure":       {1, cause, Decision{Verdict: Retry, Wait: time.Second}},
		"second failure":      {2, cause, Decision{Verdict: Retry, Wait: 2 * time.Second}},
		"last failure":        {3, cause, Decision{Verdict: Dead, Cause: schema.CauseExhausted}},
		"beyond the last":     {7, cause, Decision{Verdict: Dead, Cause: schema.CauseExhausted}},
		"permanent":           {1, schema.WithKind(schema.Permanent, cause), Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"permanent, wrapped":  {1, fmt.Errorf("x: %w", schema.WithKind(schema.Permanent, cause)), Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"permanent at last":   {3, schema.WithKind(schema.Permanent, cause), Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"invalid message":     {1, &schema.ValidationError{}, Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"shutdown":            {3, context.Canceled, Decision{Verdict: Release}},
		"not mine":            {3, schema.WithKind(schema.NotMine, cause), Decision{Verdict: Leave}},
		"time is up":          {1, context.DeadlineExceeded, Decision{Verdict: Retry, Wait: time.Second}},
		"told when":           {1, schema.RetryAfter(cause, 7*time.Second), Decision{Verdict: Retry, Wait: 7 * time.Second}},
		"told a year":         {1, schema.RetryAfter(cause, 365*24*time.Hour), Decision{Verdict: Retry, Wait: maxRetryAfter}},
		"told nothing":        {2, schema.RetryAfter(cause, -time.Second), Decision{Verdict: Retry, Wait: 2 * time.Second}},
		"told when, at last":  {3, schema.RetryAfter(cause, time.Second), Decision{Verdict: Dead, Cause: schema.CauseExhausted}},
		"panic with any kind": {1, &PanicError{Value: schema.WithKind(schema.Permanent, cause)}, Decision{Verdict: Retry, Wait: time.Second}},
		"snooze":              {1, schema.Snooze(cause, 7*time.Second), Decision{Verdict: Snoozed, Wait: 7 * time.Second}},
		"snooze at last":      {3, fmt.Errorf("x: %w", schema.Snooze(cause, time.Second)), Decision{Verdict: Snoozed, Wait: time.Second}},
		"snooze for a year":   {1, schema.Snooze(cause, 365*24*time.Hour), Decision{Verdict: Snoozed, Wait: maxRetryAfter}},
		"snooze, but fatal":   {1, schema.WithKind(schema.Permanent, schema.Snooze(cause, time.Second)), Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"gone":                {1, schema.Gone(cause), Decision{Verdict: Dead, Cause: schema.CausePermanent}},
		"cancel":              {1, schema.Cancel(cause), Decision{Verdict: Cancelled, Cause: schema.CauseCancelled}},
		"cancel at last":      {3, fmt.Errorf("x: %w", schema.Cancel(cause)), Decision{Verdict: Cancelled, Cause: schema.CauseCancelled}},
		"cancel, but later":   {1, schema.RetryAfter(schema.Cancel(cause), time.Second), Decision{Verdict: Retry, Wait: time.Second}},
	} {
		if got := Decide(policy, c.attempt, "id", c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestDecide_never_retries_without_end(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := schema.RetryPolicy{
			MaxAttempts: rapid.IntRange(1, 40).Draw(t, "max"), Base: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "base")),
			Factor: rapid.Float64Range(1, 10).Draw(t, "factor"), Max: time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "cap")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		if err := policy.Validate(); err != nil {
			t.Fatal(err)
		}
		id := rapid.String().Draw(t, "id")
		for attempt := 1; attempt <= policy.MaxAttempts; attempt++ {
			d := Decide(policy, attempt, id, errors.New("x"))
			if last := attempt == policy.MaxAttempts; last != (d.Verdict == Dead) || !last && d.Verdict != Retry || d.Wait < 0 {
				t.Fatalf("attempt %d of %d: %+v", attempt, policy.MaxAttempts, d)
			}
		}
	})
}
