package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// The key counts as done only when the work is: a first try that fails, panics or times out leaves it open.
func TestC04_key_counts_only_after_success(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx, handlers.ModeNone} {
		for _, how := range []string{"fails", "panics", "times out"} {
			t.Run(mode.String()+"/"+strings.ReplaceAll(how, " ", "_"), func(t *testing.T) {
				onBoth(t, func(t *testing.T, b *bench) {
					bridge := b.open()
					policy := quick(5)
					policy.Mode, policy.Timeout = mode, patience
					if how == "times out" {
						policy.Timeout = 2 * time.Second // the second try needs a part of it
					}
					var seen calls
					effects := 0
					b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
						if seen.add(env) > 1 {
							effects++
							return nil
						}
						switch how {
						case "panics":
							panic("out of paper")
						case "times out":
							<-ctx.Done()
							return ctx.Err()
						}
						return errFlaky
					})
					b.publish(bridge, schema.NewJob("billing", "charge", nil, schema.WithKey("k")))
					b.run(bridge)
					b.eventually(seen.reaches(2))
					b.awaitNoJobs()
					if seen.count() != 2 || effects != 1 || len(b.letters()) != 0 {
						t.Errorf("%d calls, %d effects, %d letters", seen.count(), effects, len(b.letters()))
					}
				})
			})
		}
	}
}

// A publish that fails once must not use its key up.
func TestC04_publish_that_fails_once(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		b.target(bridge, "billing", quick(1), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
		b.run(bridge)
		job := schema.NewJob("billing", "charge", nil, schema.WithKey("k"))
		failed := b.store.Unit(t.Context(), func(u schema.Unit) error {
			if _, err := u.Append(t.Context(), []schema.Envelope{job}); err != nil {
				return err
			}
			return errFlaky
		})
		if !errors.Is(failed, errFlaky) {
			t.Fatal(failed)
		}
		if r := b.publish(bridge, job); r[0].Existing {
			t.Errorf("the second try is taken for a duplicate: %+v", r)
		}
		b.eventually(seen.reaches(1))
	})
}

// A target that fails twice: three calls, each with its whole time, at the configured distances.
func TestC07_retries_happen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		policy := handlers.Policy{
			Retry:   schema.RetryPolicy{MaxAttempts: 5, Base: 500 * time.Millisecond, Factor: 2},
			Timeout: patience,
		}
		var seen calls
		b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
			n := seen.add(env)
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left < policy.Timeout/2 || left > policy.Timeout || ctx.Err() != nil {
				t.Errorf("call %d has %v left, error %v", n, left, ctx.Err())
			}
			if got := handlers.Attempt(ctx); got != n {
				t.Errorf("call %d is attempt %d", n, got)
			}
			if n < 3 {
				return errFlaky
			}
			return nil
		})
		told, err := b.conn.SubscribeSync("$JS.ACK.>") // what the server hears
		if err != nil {
			t.Fatal(err)
		}
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
		b.run(bridge)
		b.eventually(seen.reaches(3))
		b.awaitNoJobs()
		if seen.count() != 3 || len(b.letters()) != 0 {
			t.Fatalf("%d calls, %d letters", seen.count(), len(b.letters()))
		}
		// The waits that are asked for are the policy's to the nanosecond; what comes on top is the machine's.
		wants := []time.Duration{500 * time.Millisecond, time.Second}
		var asked []time.Duration
		for len(asked) < len(wants) {
			m, err := told.NextMsg(patience)
			if err != nil {
				t.Fatalf("only %v were asked for: %v", asked, err)
			}
			var nak struct{ Delay time.Duration }
			if text, ok := strings.CutPrefix(string(m.Data), "-NAK "); ok && json.Unmarshal([]byte(text), &nak) == nil {
				asked = append(asked, nak.Delay)
			}
		}
		at := seen.times()
		for i, want := range wants {
			if gap := at[i+1].Sub(at[i]); asked[i] != want || gap < want || gap > want+patience/2 {
				t.Errorf("gap %d is %v, %v was asked for, want %v", i+1, gap, asked[i], want)
			}
		}
	})
}

// A retry limit below 1 is refused.
func TestC07_limits_without_sense_are_refused(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	for _, limit := range []int{0, -1, math.MinInt} {
		err := bridge.Target(handlers.Target{
			Name: "billing", Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil }),
			Policy: handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: limit, Base: 1, Factor: 1}},
		})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("max_attempts is %d, must be at least 1", limit)) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// A handler that panics is tried as often as one that fails, and the panic is told.
// coded is an error that panics when it is read, if it is a nil pointer.
type coded struct{ code int }

func (e *coded) Error() string { return fmt.Sprint("code ", e.code) }

func TestC09_panics_reach_the_poison_queue(t *testing.T) {
	var empty map[string]int
	for name, c := range map[string]struct {
		panics func() error
		want   string
	}{
		"string":        {func() error { panic("out of\npaper") }, "panic: out of paper"},
		"error":         {func() error { panic(handlers.Permanent(errFlaky)) }, "panic: the other side is out of order"},
		"nil":           {func() error { panic(nil) }, "panic called with nil argument"},
		"runtime_error": {func() error { empty["x"] = 1; return nil }, "assignment to entry in nil map"},
		"unreadable":    {func() error { return (*coded)(nil) }, "the error, a *router_test.coded, cannot be read: runtime error: invalid memory"},
		"with_one":      {func() error { panic((*coded)(nil)) }, "the error, a *router_test.coded, cannot be read: runtime error: invalid memory"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				bridge := b.open()
				var seen, other calls
				b.target(bridge, "fragile", quick(3), func(_ context.Context, env schema.Envelope) error {
					seen.add(env)
					return c.panics()
				})
				b.target(bridge, "solid", quick(3), func(_ context.Context, env schema.Envelope) error { other.add(env); return nil })
				stop := b.run(bridge)
				b.publish(bridge, schema.NewJob("fragile", "x", nil), schema.NewJob("solid", "x", nil))
				letter := b.awaitLetters(1)[0]
				b.publish(bridge, schema.NewJob("solid", "x", nil))
				b.eventually(other.reaches(2))
				b.awaitNoJobs()
				if seen.count() != 3 || letter.Attempts != 3 || letter.Cause != schema.CauseExhausted {
					t.Errorf("%d calls, letter %+v", seen.count(), letter.DeadLetter)
				}
				if !strings.Contains(letter.Reason, c.want) || strings.ContainsAny(letter.Reason, "\r\n") {
					t.Errorf("the reason is %q, want one line with %q", letter.Reason, c.want)
				}
				if !strings.Contains(letter.Stack, "cases_retry_test.go") {
					t.Errorf("the stack does not show where:\n%s", letter.Stack)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A target that always fails: as many attempts as the limit says, never closer than the policy, and one letter.
func TestC12_target_that_always_fails(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		policy := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 3, Base: 300 * time.Millisecond, Factor: 2}}
		var seen calls
		b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
			seen.add(env)
			return errFlaky
		})
		job := schema.NewJob("billing", "charge", []byte{0, 1, 2}, schema.WithMetadata(map[string]string{"m": "v"}))
		b.publish(bridge, job)
		b.run(bridge)
		letter := b.awaitLetters(1)[0]
		b.awaitNoJobs()
		at := seen.times()
		if len(at) != 3 {
			t.Fatalf("%d attempts, want 3", len(at))
		}
		for i, want := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
			if gap := at[i+1].Sub(at[i]); gap < want {
				t.Errorf("gap %d is %v, want at least %v", i+1, gap, want)
			}
		}
		if letter.Cause != schema.CauseExhausted || letter.Attempts != 3 || letter.Deliveries != 3 || letter.ID != job.ID ||
			letter.Handler != "billing" || letter.Reason != "error: "+errFlaky.Error() || time.Since(letter.Time) > time.Minute {
			t.Errorf("the letter is %+v", letter.DeadLetter)
		}
		env, err := letter.Envelope(b.subjects)
		if err != nil || string(env.Payload) != string(job.Payload) || env.Metadata["m"] != "v" {
			t.Errorf("the letter holds %+v, error %v", env, err)
		}
		recs, err := b.store.InboxByMessage(t.Context(), job.ID)
		if err != nil || len(recs) != 1 || recs[0].State != schema.InboxDead || recs[0].Attempts != 3 {
			t.Errorf("the inbox has %+v, error %v", recs, err)
		}
	})
}

// The kinds of errors decide without further attempts, or when to try again.
func TestErrors_decide_what_happens(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var wrong, slow, confused calls
		b.target(bridge, "wrong", quick(5), func(_ context.Context, env schema.Envelope) error {
			wrong.add(env)
			return fmt.Errorf("look up: %w", handlers.Permanent(errors.New("no such customer")))
		})
		b.target(bridge, "slow", quick(5), func(_ context.Context, env schema.Envelope) error {
			if slow.add(env) == 1 {
				return handlers.RetryAfter(errFlaky, 700*time.Millisecond)
			}
			return nil
		})
		b.target(bridge, "confused", quick(3), func(_ context.Context, env schema.Envelope) error {
			// Neither is true: the bridge does not stop and has not lost the key.
			if confused.add(env) == 1 {
				return fmt.Errorf("sub-request: %w", context.Canceled)
			}
			return schema.WithKind(schema.NotMine, schema.ErrLeaseLost)
		})
		b.publish(bridge, schema.NewJob("wrong", "x", nil), schema.NewJob("slow", "x", nil), schema.NewJob("confused", "x", nil))
		b.run(bridge)
		letters := b.awaitLetters(2)
		b.awaitNoJobs()
		if at := slow.times(); len(at) != 2 || at[1].Sub(at[0]) < 700*time.Millisecond {
			t.Errorf("slow was called at %v", at)
		}
		for _, l := range letters {
			switch {
			case l.Handler == "wrong" && l.Cause == schema.CausePermanent && l.Attempts == 1 && wrong.count() == 1:
			case l.Handler == "confused" && l.Cause == schema.CauseExhausted && l.Attempts == 3 && confused.count() == 3:
			default:
				t.Errorf("letter %+v", l.DeadLetter)
			}
		}
	})
}

// An unknown action is permanent and names target and action.
func TestActions_unknown_action_is_dead_lettered(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var actions handlers.Actions
		handlers.On(&actions, "charge", func(context.Context, struct{}, string) error { return nil })
		if err := bridge.Target(handlers.Target{Name: "billing", Handler: &actions}); err != nil {
			t.Fatal(err)
		}
		b.publish(bridge, schema.NewJob("billing", "refund", nil), schema.NewJob("billing", "charge", map[string]int{"cents": 1}))
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Counts != (router.Counts{Dead: 2}) {
			t.Errorf("tally %+v, error %v", tally, err)
		}
		want := map[string]bool{`target "billing" has no action "refund"; it has charge`: true, `args of billing/charge: field "cents": is not known`: true}
		for _, l := range b.awaitLetters(2) {
			_, text, _ := strings.Cut(l.Reason, ": ")
			if l.Cause != schema.CausePermanent || l.Attempts != 1 || !want[text] {
				t.Errorf("letter %q, cause %s, %d attempts", l.Reason, l.Cause, l.Attempts)
			}
		}
	})
}
