package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

var modes = []handlers.Mode{handlers.ModeLease, handlers.ModeTx, handlers.ModeNone}

// A message that is snoozed more often than it has attempts, and than crashes are suffered, is still handled: snoozing
// costs neither. What was written in its transaction is gone each time.
func TestSnooze_costs_no_attempt(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.exec("CREATE TABLE effects (mode text)")
		seen := map[handlers.Mode]*calls{}
		for _, mode := range modes {
			seen[mode] = &calls{}
			policy := quick(2)
			policy.Mode, policy.MaxCrashes = mode, 2
			b.target(bridge, mode.String(), policy, func(ctx context.Context, env schema.Envelope) error {
				n := seen[mode].add(env)
				if mode == handlers.ModeTx {
					if err := writeEffect(ctx, mode.String()); err != nil {
						return err
					}
				}
				if got := handlers.Attempt(ctx); got != 1 {
					t.Errorf("%v: call %d is attempt %d", mode, n, got)
				}
				if n <= 4 {
					return fmt.Errorf("look: %w", handlers.Snooze(errFlaky, 30*time.Millisecond))
				}
				return nil
			})
			b.publish(bridge, schema.NewJob(mode.String(), "x", nil, schema.WithID("m-"+mode.String())))
		}
		b.run(bridge)
		for _, mode := range modes {
			b.eventually(seen[mode].reaches(5))
		}
		b.awaitNoJobs()
		for _, mode := range modes {
			if n := seen[mode].count(); n != 5 {
				t.Errorf("%v: %d calls", mode, n)
			}
			at := seen[mode].times()
			if gap := at[1].Sub(at[0]); gap < 30*time.Millisecond {
				t.Errorf("%v: called again after %v", mode, gap)
			}
			recs, err := b.store.InboxByMessage(t.Context(), "m-"+mode.String())
			if err != nil || len(recs) != 1 || recs[0].State != schema.InboxDone || recs[0].Attempts != 0 {
				t.Errorf("%v: the inbox has %+v, error %v", mode, recs, err)
			}
		}
		for _, h := range bridge.Health(t.Context()).Handlers {
			if h.Counts != (router.Counts{Handled: 1, Snoozed: 4}) {
				t.Errorf("%s: %+v", h.Name, h.Counts)
			}
		}
		if n := b.count("SELECT count(*) FROM effects"); n != 1 || len(b.letters()) != 0 {
			t.Errorf("%d effects, want 1; %d letters", n, len(b.letters()))
		}
	})
}

// A cancelled message is done with: it is acked, its key says why, there is no letter, and a repeat does not run.
func TestCancel_leaves_no_letter(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.exec("CREATE TABLE effects (mode text)")
		var seen calls
		for _, mode := range modes {
			policy := quick(3)
			policy.Mode = mode
			b.target(bridge, mode.String(), policy, func(ctx context.Context, env schema.Envelope) error {
				seen.add(env)
				if mode == handlers.ModeTx {
					if err := writeEffect(ctx, mode.String()); err != nil {
						return err
					}
				}
				return fmt.Errorf("look: %w", handlers.Cancel(errors.New("the order was withdrawn")))
			})
			b.publish(bridge, schema.NewJob(mode.String(), "x", nil, schema.WithID("m-"+mode.String())))
		}
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Counts != (router.Counts{Cancelled: 3}) || seen.count() != 3 {
			t.Errorf("tally %+v, %d calls, error %v", tally, seen.count(), err)
		}
		b.awaitNoJobs()
		for _, mode := range modes {
			recs, err := b.store.InboxByMessage(t.Context(), "m-"+mode.String())
			if err != nil || len(recs) != 1 || recs[0].State != schema.InboxDone || recs[0].Cause != schema.CauseCancelled ||
				!strings.Contains(recs[0].LastError, "withdrawn") {
				t.Errorf("%v: the inbox has %+v, error %v", mode, recs, err)
			}
		}
		if n := b.count("SELECT count(*) FROM effects"); n != 0 || len(b.letters()) != 0 {
			t.Errorf("%d effects and %d letters are left", n, len(b.letters()))
		}
	})
}

// writeEffect writes a row in the handler's transaction.
func writeEffect(ctx context.Context, mode string) error {
	call, _ := handlers.CallFrom(ctx)
	return execTx(ctx, call.Unit.Tx(), "INSERT INTO effects VALUES ('"+mode+"')")
}

// Each job type has its own attempts and time; what it leaves open is the target's, and what that leaves open the default.
func TestSpec_decides_attempts_and_time(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	once := schema.JobType[struct{}]{
		Target: "billing", Action: "once", Timeout: 5 * time.Second,
		Retry: schema.RetryPolicy{MaxAttempts: 1, Base: time.Millisecond, Factor: 1},
	}
	plain := schema.JobType[struct{}]{Target: "billing", Action: "plain"}
	var actions handlers.Actions
	var mu sync.Mutex
	got := map[string][]string{}
	note := func(action string) func(ctx context.Context, _ struct{}, _ string) error {
		return func(ctx context.Context, _ struct{}, _ string) error {
			call, _ := handlers.CallFrom(ctx)
			left := time.Until(call.Deadline).Round(5 * time.Second)
			mu.Lock()
			got[action] = append(got[action], fmt.Sprintf("%d/%d %v", call.Attempt, call.MaxAttempts, left))
			mu.Unlock()
			return errFlaky
		}
	}
	handlers.OnJob(&actions, once, note("once"))
	handlers.OnJob(&actions, plain, note("plain"))
	handlers.On(&actions, "untyped", note("untyped"))
	policy := quick(2)
	policy.Timeout = 20 * time.Second
	if err := bridge.Target(handlers.Target{Name: "billing", Policy: policy, Handler: &actions}); err != nil {
		t.Fatal(err)
	}
	b.publish(bridge, once.New(struct{}{}), plain.New(struct{}{}), schema.NewJob("billing", "untyped", nil))
	b.run(bridge)
	b.awaitLetters(3)
	want := map[string]string{"once": "1/1 5s", "plain": "1/2 20s, 2/2 20s", "untyped": "1/2 20s, 2/2 20s"}
	mu.Lock()
	defer mu.Unlock()
	for action, w := range want {
		if g := strings.Join(got[action], ", "); g != w {
			t.Errorf("%s: %s, want %s", action, g, w)
		}
	}
}

// The hooks are called in the order in which they nest, with the context that those before them have made; one that
// panics is no failed attempt. The handler knows from its call whose message it has.
func TestHooks_nest(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	var mu sync.Mutex
	var steps []string
	step := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, fmt.Sprintf(format, args...))
	}
	type key string
	hook := func(name string) handlers.Hooks {
		return handlers.Hooks{
			Start: func(ctx context.Context, env schema.Envelope) context.Context {
				step("%s start %v %d", name, ctx.Value(key("outer")), handlers.Attempt(ctx))
				return context.WithValue(ctx, key(name), name)
			},
			End: func(ctx context.Context, env schema.Envelope, err error, took time.Duration) {
				step("%s end %v %t", name, ctx.Value(key("inner")), err == nil)
			},
			Settled: func(ctx context.Context, env schema.Envelope, d handlers.Decision) {
				step("%s settled %v %d %t", name, ctx.Value(key("outer")), d.Verdict, ctx.Err() == nil)
			},
		}
	}
	wild := handlers.Hooks{
		Start:   func(context.Context, schema.Envelope) context.Context { panic("start") },
		End:     func(context.Context, schema.Envelope, error, time.Duration) { panic("end") },
		Settled: func(context.Context, schema.Envelope, handlers.Decision) { panic("settled") },
	}
	bridge := b.open(func(c *router.Config) { c.Hooks = []handlers.Hooks{hook("outer"), wild, {}, hook("inner")} })
	var last handlers.Call
	b.target(bridge, "billing", quick(2), func(ctx context.Context, _ schema.Envelope) error {
		last, _ = handlers.CallFrom(ctx)
		step("handler %v", ctx.Value(key("inner")))
		if last.Attempt == 1 {
			panic("out of paper")
		}
		return nil
	})
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b.publish(bridge, schema.NewJob("billing", "x", nil, schema.WithID("m1"), schema.WithKey("k1"), schema.WithTenant("acme"),
		schema.WithActor("ann"), schema.WithRequestID("r1"), schema.WithTrace(trace, "a=b")))
	b.run(bridge)
	b.eventually(func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(steps) < 14 {
			return fmt.Errorf("%q", steps)
		}
		return nil
	})
	want := []string{
		"outer start <nil> 1", "inner start outer 1", "handler inner", "inner end inner false", "outer end <nil> false",
		"inner settled outer 1 true", "outer settled outer 1 true",
		"outer start <nil> 2", "inner start outer 2", "handler inner", "inner end inner true", "outer end <nil> true",
		"inner settled outer 0 true", "outer settled outer 0 true",
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(steps, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	if last.Deadline.IsZero() || last.ID != "m1" || last.Key != "k1" || last.Tenant != "acme" || last.Actor != "ann" ||
		last.RequestID != "r1" || last.TraceParent != trace || last.TraceState != "a=b" {
		t.Errorf("the call is %+v", last)
	}
}

func execTx(ctx context.Context, tx any, query string) (err error) {
	switch tx := tx.(type) {
	case *sql.Tx:
		_, err = tx.ExecContext(ctx, query)
	case pgx.Tx:
		_, err = tx.Exec(ctx, query)
	default:
		err = fmt.Errorf("the transaction is a %T", tx)
	}
	return err
}
