package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// disabled reports an error unless the only circuit is that of a handler which is disabled.
func (b *bench) disabled() error {
	c, err := b.circuit()
	if err == nil && !c.Disabled {
		err = fmt.Errorf("circuit %+v", c)
	}
	return err
}

func (b *bench) disable(handler, reason string) {
	b.Helper()
	if _, changed, err := b.store.DisableHandler(b.Context(), handler, reason, 0); err != nil || !changed {
		b.Fatalf("disable: %v, %v", changed, err)
	}
}

func (b *bench) enable(handler string) {
	b.Helper()
	if _, changed, err := b.store.EnableHandler(b.Context(), handler); err != nil || !changed {
		b.Fatalf("enable: %v, %v", changed, err)
	}
}

// held reports an error unless so many messages are in hand and the bridge says why.
func held(bridge *router.Bridge, handler string, n int, why ...string) func() error {
	return func() error {
		h := bridge.Health(context.Background())
		i := slices.IndexFunc(h.Handlers, func(h router.HandlerHealth) bool { return h.Name == handler })
		if !h.Handlers[i].Circuit.Disabled || h.Handlers[i].Running != n {
			return fmt.Errorf("%+v", h.Handlers[i])
		}
		text := strings.Join(h.Problems, "\n")
		for _, part := range append(why, handler+": is disabled since", "millbridge target enable "+handler) {
			if !strings.Contains(text, part) {
				return fmt.Errorf("problems %q do not say %q", text, part)
			}
		}
		return nil
	}
}

// What fails for long in two processes at once is disabled once, with one event. It is not called any more, keeps its
// messages, and goes on in both processes when it is enabled.
func TestDisable_what_fails_for_long(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const jobs = 12
		var down atomic.Bool
		down.Store(true)
		var seen, told calls
		policy := quick(1000)
		policy.Concurrency, policy.Breaker.DisableAfter = 4, 700*time.Millisecond
		bridges := []*router.Bridge{b.open(), b.open(noForward)}
		for _, bridge := range bridges {
			b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
				seen.add(env)
				if down.Load() {
					return errFlaky
				}
				return nil
			})
		}
		if err := bridges[0].Subscribe(handlers.Subscription{
			Name: "alarm", Events: []string{"millbridge.target.*"}, From: handlers.FromAll,
			Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error { told.add(env); return nil }),
		}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range jobs {
			b.publish(bridges[0], schema.NewJob("billing", "charge", nil))
		}
		b.run(bridges[0])
		b.run(bridges[1])
		b.eventually(b.disabled)
		if d := time.Since(start); d < policy.Breaker.DisableAfter {
			t.Errorf("it was disabled after %v", d)
		}
		for _, bridge := range bridges {
			b.eventually(held(bridge, "billing", policy.Concurrency, "failures in a row", errFlaky.Error()))
		}
		b.eventually(told.reaches(1))
		before := seen.count()
		b.eventually(func() error { // three looks at the circuits later
			if d := time.Since(told.times()[0]); d < 3*time.Second {
				return fmt.Errorf("%v", d)
			}
			return nil
		})
		if n := seen.count(); n != before || len(b.letters()) != 0 || b.waiting(schema.Jobs, "jobs.billing.>") != jobs {
			t.Errorf("%d calls, then %d; %d letters; %d wait", before, n, len(b.letters()), b.waiting(schema.Jobs, "jobs.billing.>"))
		}
		down.Store(false)
		b.enable("billing")
		b.awaitNoJobs()
		b.eventually(told.reaches(2))
		if got := len(seen.byID()); got != jobs || len(b.letters()) != 0 {
			t.Errorf("%d of %d messages were handled, %d died", got, jobs, len(b.letters()))
		}
		if n := b.waiting(schema.Events, "events.internal.millbridge.target.>"); n != 2 {
			t.Errorf("%d events, want one for each change", n)
		}
		var change schema.HandlerChange
		first := told.all()[0]
		if err := json.Unmarshal(first.Payload, &change); err != nil || first.Name != schema.HandlerDisabled.Name ||
			change.Handler != "billing" || change.Failures < 2 || change.Since.Before(start.Add(-time.Minute)) || !strings.Contains(change.Reason, errFlaky.Error()) {
			t.Errorf("event %s %+v, error %v", first.Name, change, err)
		}
	})
}

// One success begins the time anew: what fails now and then stays enabled.
func TestDisable_not_what_goes_well_meanwhile(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	var n atomic.Int64
	policy := quick(3)
	policy.Concurrency, policy.Breaker.DisableAfter = 1, 300*time.Millisecond
	start := time.Now()
	b.target(bridge, "billing", policy, func(context.Context, schema.Envelope) error {
		if n.Add(1)%2 == 1 {
			return errFlaky
		}
		return nil
	})
	b.run(bridge)
	for time.Since(start) < 4*policy.Breaker.DisableAfter {
		want := n.Load() + 2
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
		b.eventually(func() error {
			if got := n.Load(); got < want {
				return fmt.Errorf("%d runs", got)
			}
			return nil
		})
	}
	b.awaitNoJobs()
	if c, err := b.store.Circuits(t.Context()); err != nil || len(c) != 0 {
		t.Errorf("circuits %+v, error %v", c, err)
	}
}

// Whom nobody may call any more is disabled at once where the policy disables. The message waits and has lost no attempt.
func TestDisable_at_once_what_is_gone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var gone atomic.Bool
		gone.Store(true)
		var seen calls
		var attempts atomic.Int64
		serve := func(name string, breaker handlers.Breaker, mode handlers.Mode) *router.Bridge {
			policy := quick(1)
			policy.Breaker, policy.Mode = breaker, mode
			bridge := b.open()
			b.target(bridge, name, policy, func(ctx context.Context, env schema.Envelope) error {
				seen.add(env)
				attempts.Store(int64(handlers.Attempt(ctx)))
				if gone.Load() {
					return handlers.Gone(errors.New("answered 410"))
				}
				return nil
			})
			return bridge
		}
		for mode := range handlers.ModeNone + 1 {
			name := "hook-" + mode.String()
			bridge := serve(name, handlers.Breaker{DisableAfter: 24 * time.Hour, Failures: int(mode)}, mode)
			gone.Store(true)
			before := seen.count()
			b.publish(bridge, schema.NewJob(name, "post", nil))
			stop := b.run(bridge)
			b.eventually(b.disabled)
			b.eventually(held(bridge, name, 1, "answered 410")) // it has come back
			gone.Store(false)
			b.enable(name)
			b.awaitNoJobs()
			if n := seen.count() - before; n != 2 || attempts.Load() != 1 || len(b.letters()) != 0 {
				t.Errorf("%s: %d calls, the last was attempt %d; %d letters", name, n, attempts.Load(), len(b.letters()))
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		bridge := serve("old", handlers.Breaker{Failures: 1}, handlers.ModeLease)
		gone.Store(true)
		b.publish(bridge, schema.NewJob("old", "post", nil))
		b.run(bridge)
		if letter := b.awaitLetters(1)[0]; letter.Cause != schema.CausePermanent || !strings.Contains(letter.Reason, "answered 410") {
			t.Errorf("without a policy that disables: %s, %q", letter.Cause, letter.Reason)
		}
	})
}

// An operator disables a target whose policy has no breaker, while its bridge runs: it ends what it is at, begins nothing,
// holds up neither a stop nor a drain, which says what waits, and goes on in order when it is enabled.
func TestDisable_by_an_operator(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const jobs = 8
		begun, end := make(chan struct{}), make(chan struct{})
		var seen, other calls
		bridge := b.open(calm)
		b.target(bridge, "ledger", orderedPolicy(2), func(_ context.Context, env schema.Envelope) error {
			if seen.add(env) == 1 {
				close(begun)
				<-end
			}
			return nil
		})
		b.target(bridge, "mail", quick(1), func(_ context.Context, env schema.Envelope) error { other.add(env); return nil })
		stop := b.run(bridge)
		var want []string
		for range jobs {
			job := schema.NewJob("ledger", "book", nil, schema.WithOrderingKey("a"))
			want = append(want, job.ID)
			b.publish(bridge, job)
		}
		<-begun
		b.disable("ledger", "stocktaking")
		b.eventually(held(bridge, "ledger", 1, "stocktaking"))
		close(end)
		b.publish(bridge, schema.NewJob("mail", "send", nil))
		b.eventually(other.reaches(1))
		b.eventually(func() error {
			if n := b.waiting(schema.Jobs, "jobs.ledger.>"); n != jobs-1 {
				return fmt.Errorf("%d wait", n)
			}
			return nil
		})
		start := time.Now()
		if err := stop(); err != nil || time.Since(start) > 9*time.Second {
			t.Errorf("the stop took %v, error %v", time.Since(start), err)
		}
		b.publish(bridge, schema.NewJob("mail", "send", nil))
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Handled != 1 || !slices.Equal(tally.Disabled, []string{"ledger"}) {
			t.Errorf("tally %+v, error %v", tally, err)
		}
		if n := seen.count(); n != 1 {
			t.Errorf("%d calls while it was disabled, want that which had begun", n)
		}
		b.run(bridge)
		b.eventually(held(bridge, "ledger", 1))
		b.enable("ledger")
		b.awaitNoJobs()
		var got []string
		for _, env := range seen.all() {
			got = append(got, env.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("handled %q, want %q", got, want)
		}
		if c, err := b.store.Circuits(t.Context()); err != nil || len(c) != 0 {
			t.Errorf("circuits %+v, error %v", c, err)
		}
	})
}

// Processes that die while a target is disabled are no crashes of its messages.
func TestDisable_counts_no_crashes(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	var seen calls
	policy := quick(1)
	policy.MaxCrashes = 3
	serve := func() *router.Bridge {
		bridge := b.open()
		b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
		return bridge
	}
	bridge := serve()
	if _, err := bridge.Drain(t.Context()); err != nil { // makes the consumer
		t.Fatal(err)
	}
	job := schema.NewJob("billing", "charge", nil)
	b.publish(bridge, job)
	b.disable("billing", "maintenance")
	for want := range uint64(8) {
		stop := b.run(bridge)
		b.eventually(held(bridge, "billing", 1))
		if n := want + 1; n+1 >= uint64(policy.MaxCrashes) { // one less makes nobody suspect, and is not noted
			b.eventually(func() error { // as if the process died now
				rec, err := b.store.InboxByMessage(t.Context(), job.ID)
				if err != nil || len(rec) != 1 || rec[0].Deliveries < n-1 || rec[0].Attempts != 0 {
					return fmt.Errorf("delivery %d: records %+v, error %v", n, rec, err)
				}
				return nil
			})
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	b.enable("billing")
	b.run(bridge)
	b.awaitNoJobs()
	if seen.count() != 1 || len(b.letters()) != 0 {
		t.Errorf("%d calls, %d letters", seen.count(), len(b.letters()))
	}
}

// What has waited through some restarts while its target was disabled goes on side by side when it is enabled.
func TestDisable_puts_nobody_on_trial(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	policy := quick(1)
	policy.MaxCrashes, policy.Concurrency = 3, 5
	var seen calls
	together := make(chan struct{})
	serve := func() *router.Bridge {
		bridge := b.open()
		b.target(bridge, "billing", policy, func(ctx context.Context, env schema.Envelope) error {
			if seen.add(env) == policy.Concurrency {
				close(together)
			}
			select {
			case <-together:
				return nil
			case <-ctx.Done():
				return errors.New("alone")
			}
		})
		return bridge
	}
	bridge := serve()
	if _, err := bridge.Drain(t.Context()); err != nil { // makes the consumer
		t.Fatal(err)
	}
	for range policy.Concurrency {
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
	}
	b.disable("billing", "maintenance")
	for range 4 {
		stop := b.run(bridge)
		b.eventually(held(bridge, "billing", policy.Concurrency))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	b.run(bridge)
	b.eventually(held(bridge, "billing", policy.Concurrency))
	b.enable("billing")
	b.awaitNoJobs()
	if n := len(b.letters()); n != 0 || seen.count() != policy.Concurrency {
		t.Errorf("%d calls, %d letters", seen.count(), n)
	}
}
