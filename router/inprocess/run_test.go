package inprocess_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

func TestEvents_go_to_every_subscription_and_none_is_fine(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	got := map[string]*seen{}
	for name, events := range map[string][]string{
		"all": {">"}, "orders": {"order.*", "order.*.late"}, "exact": {"order.placed"}, "none": {"order"}, "deep": {"order.>"},
	} {
		got[name] = &seen{}
		if err := q.Subscribe(handlers.Subscription{Name: name, Events: events, Handler: got[name], Policy: handlers.Policy{Concurrency: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, q, schema.NewEvent("order.placed", nil), schema.NewEvent("order.paid.late", nil, schema.WithPublic()), schema.NewEvent("user.new", nil))
	handlertest.DrainUntilEmpty(t, q)
	for name, want := range map[string][]string{
		"all": {"order.placed", "order.paid.late", "user.new"}, "orders": {"order.placed", "order.paid.late"},
		"exact": {"order.placed"}, "none": {}, "deep": {"order.placed", "order.paid.late"},
	} {
		if names := got[name].names(); !slices.Equal(names, want) {
			t.Errorf("%s got %v, want %v", name, names, want)
		}
	}
	alone, _ := newQueue(t, inprocess.Config{})
	publish(t, alone, schema.NewEvent("order.placed", nil))
	wantTally(t, handlertest.DrainUntilEmpty(t, alone), inprocess.Tally{})
}

func TestUnknown_target_is_parked_and_found_later(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	var got seen
	if err := q.Subscribe(handlers.Subscription{Name: "mailer-log", Events: []string{">"}, Handler: &got}); err != nil {
		t.Fatal(err)
	}
	publish(t, q, job("send"), schema.NewJob("mailer-log", "send", nil))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Parked: 2})
	p := q.Parked()
	if len(p) != 2 || p[0].Envelope.Target != "mailer" || p[0].Reason != "there is no target mailer here; there are mailer-log" {
		t.Fatalf("parked: %+v", p)
	}
	target(t, q, "mailer", handlers.Policy{}, got.Handle)
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 1, Parked: 1})
	if err := q.Drop("", q.Parked()[0].Envelope.ID); err != nil || len(q.Parked()) != 0 {
		t.Errorf("drop: %v; left %+v", err, q.Parked())
	}
	if err := q.Drop("", "none"); !errors.Is(err, schema.ErrNotFound) {
		t.Errorf("drop what is not there: %v", err)
	}
}

func TestRetries_wait_by_the_policy_on_the_queues_clock(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	var at []time.Duration
	var attempts []int
	start := clock.Now()
	policy := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 4, Base: time.Minute, Factor: 2}}
	target(t, q, "mailer", policy, func(ctx context.Context, _ schema.Envelope) error {
		at, attempts = append(at, clock.Now().Sub(start)), append(attempts, handlers.Attempt(ctx))
		if call, _ := handlers.CallFrom(ctx); call.MaxAttempts != 4 {
			t.Errorf("max attempts %d", call.MaxAttempts)
		}
		return errDown
	})
	publish(t, q, job("send", schema.WithID("m")))
	tally, err := q.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantTally(t, tally, inprocess.Tally{Retried: 1, Waiting: 1})
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Retried: 2, Dead: 1})
	if !slices.Equal(at, []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute}) || !slices.Equal(attempts, []int{1, 2, 3, 4}) {
		t.Errorf("attempts %v at %v", attempts, at)
	}
	d := q.DeadLetters()
	if len(d) != 1 || d[0].Handler != "mailer" || d[0].ID != "m" || d[0].Cause != schema.CauseExhausted || d[0].Attempts != 4 ||
		d[0].Deliveries != 4 || d[0].Reason != "error: the other side is down" || d[0].Subject != "mb.jobs.mailer.send" {
		t.Errorf("dead letter %+v", d)
	}
}

func TestErrors_decide_what_happens(t *testing.T) {
	t.Parallel()
	policy := handlers.Policy{Timeout: 20 * time.Millisecond, Retry: schema.RetryPolicy{MaxAttempts: 2, Base: time.Second, Factor: 1}}
	for name, c := range map[string]struct {
		fail  func(ctx context.Context) error
		tally inprocess.Tally
		wait  time.Duration
		last  string // part of the dead letter's reason
	}{
		"permanent": {
			func(context.Context) error { return handlers.Permanent(errDown) },
			inprocess.Tally{Dead: 1},
			0, "the other side is down",
		},
		"cancel": {
			func(context.Context) error { return handlers.Cancel(errDown) },
			inprocess.Tally{Cancelled: 1},
			0, "",
		},
		"snooze": {
			func(ctx context.Context) error {
				if handlers.Attempt(ctx) != 1 {
					t.Error("a snooze costs an attempt")
				}
				return handlers.Snooze(errDown, time.Hour)
			},
			inprocess.Tally{Snoozed: 3, Handled: 1},
			3 * time.Hour, "",
		},
		"retry after": {
			func(context.Context) error { return handlers.RetryAfter(errDown, time.Minute) },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Minute, "the other side is down",
		},
		"panic": {
			func(context.Context) error { panic("oops") },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Second, "panic: oops",
		},
		"an error that panics": {
			func(context.Context) error { return (*json.SyntaxError)(nil) },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Second, "the error, a *json.SyntaxError, cannot be read: runtime error: invalid memory address",
		},
		"ended goroutine": {
			func(context.Context) error { runtime.Goexit(); return nil },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Second, "the handler has ended its goroutine",
		},
		"time is up": {
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Second, "no result within 20ms",
		},
		"a shutdown that is none": {
			func(context.Context) error { return schema.WithKind(schema.Shutdown, errDown) },
			inprocess.Tally{Retried: 1, Dead: 1},
			time.Second, "the other side is down",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []schema.DeadLetter
			q, clock := newQueue(t, inprocess.Config{OnDead: func(d schema.DeadLetter) { told = append(told, d); panic("contained") }})
			start, runs := clock.Now(), 0
			target(t, q, "mailer", policy, func(ctx context.Context, _ schema.Envelope) error {
				if runs++; name == "snooze" && runs == 4 {
					return nil
				}
				return c.fail(ctx)
			})
			publish(t, q, job("send"))
			wantTally(t, handlertest.DrainUntilEmpty(t, q), c.tally)
			if d := clock.Now().Sub(start); d != c.wait {
				t.Errorf("waited %v, want %v", d, c.wait)
			}
			letters := q.DeadLetters()
			if int64(len(letters)) != c.tally.Dead || len(told) != len(letters) {
				t.Fatalf("%d dead letters, %d told, want %d", len(letters), len(told), c.tally.Dead)
			}
			for _, d := range letters {
				if !strings.Contains(d.Reason, c.last) || strings.Contains(name, "panic") != (d.Stack != "") {
					t.Errorf("dead letter %+v, want %q", d, c.last)
				}
			}
		})
	}
}

func TestJobTypes_have_their_own_rules(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	start := clock.Now()
	patient := schema.JobType[struct{}]{
		Target: "mailer", Action: "patient", Needs: schema.InMemory, Timeout: 20 * time.Millisecond,
		Retry: schema.RetryPolicy{MaxAttempts: 2, Base: time.Hour, Factor: 1},
	}
	var a handlers.Actions
	handlers.OnJob(&a, patient, func(ctx context.Context, _ struct{}, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := q.Target(handlers.Target{Name: "mailer", Handler: &a}); err != nil {
		t.Fatal(err)
	}
	publish(t, q, patient.New(struct{}{}))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Retried: 1, Dead: 1})
	if d := clock.Now().Sub(start); d != time.Hour {
		t.Errorf("waited %v, want the job type's hour", d)
	}
}

func TestTarget_refuses_what_the_queue_cannot_do(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{AllowLoss: true})
	ok := handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil })
	var a handlers.Actions
	handlers.OnJob(&a, schema.JobType[struct{}]{Target: "billing", Action: "charge", Needs: schema.OnSQLite},
		func(context.Context, struct{}, string) error { return nil })
	target(t, q, "taken", handlers.Policy{}, ok)
	for want, target := range map[string]handlers.Target{
		"job billing.charge needs sqlite, and the in-process queue gives memory": {Name: "billing", Handler: &a},
		"breaker.disable_after: nobody could enable it":                          {Name: "gone", Handler: ok, Policy: handlers.Policy{Breaker: handlers.Breaker{DisableAfter: time.Hour}}},
		"Config.Units gives no transactions":                                     {Name: "tx", Handler: ok, Policy: handlers.Policy{Mode: handlers.ModeTx}},
		"that is the name of a target":                                           {Name: "taken", Handler: ok},
		"handler: there is none":                                                 {Name: "empty"},
	} {
		if err := q.Target(target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if err := q.Subscribe(handlers.Subscription{Name: "taken", Events: []string{">"}, Handler: ok}); err == nil {
		t.Error("a subscription took a target's name")
	}
	if err := q.Subscribe(handlers.Subscription{Name: "s", Handler: ok}); err == nil {
		t.Error("a subscription without events")
	}
}

func TestReplay_starts_again_with_the_same_key(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	var got seen
	broken := true
	target(t, q, "mailer", handlers.Policy{}, func(ctx context.Context, env schema.Envelope) error {
		got.add(ctx, env)
		if broken {
			return handlers.Permanent(errDown)
		}
		return nil
	})
	publish(t, q, job("send", schema.WithID("m"), schema.WithKey("k")))
	handlertest.DrainUntilEmpty(t, q)
	for i := range 2 { // a replay can die and be replayed
		broken = i == 0
		if err := q.Replay(t.Context(), "mailer", "m"); err != nil {
			t.Fatal(err)
		}
		handlertest.DrainUntilEmpty(t, q)
		if letters := q.DeadLetters(); broken != (len(letters) == 1) || broken && letters[0].Replay != 1 {
			t.Fatalf("replay %d: dead letters %+v", i+1, letters)
		}
	}
	for i, call := range got.calls {
		if call.Key != "k" || call.Replay != i || call.Attempt != 1 {
			t.Errorf("run %d: %+v", i, call)
		}
	}
	if len(got.calls) != 3 {
		t.Errorf("%d runs, want 3", len(got.calls))
	}
	for _, err := range []error{q.Replay(t.Context(), "mailer", "m"), q.Drop("mailer", "m")} {
		if !errors.Is(err, schema.ErrNotFound) {
			t.Errorf("no such letter: %v", err)
		}
	}
	broken = true
	publish(t, q, job("send", schema.WithID("n")))
	handlertest.DrainUntilEmpty(t, q)
	if err := q.Drop("mailer", "n"); err != nil || len(q.DeadLetters()) != 0 {
		t.Errorf("drop: %v", err)
	}
}

func TestReports_tell_how_a_job_ended(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	target(t, q, "mailer", handlers.Policy{Concurrency: 1}, func(ctx context.Context, env schema.Envelope) error {
		switch env.Name {
		case "dies":
			return handlers.Permanent(errDown)
		case "goes":
			return handlers.Cancel(errDown)
		}
		return handlers.Report(ctx, map[string]int{"n": 1})
	})
	got := map[string]string{}
	target(t, q, "saga", handlers.Policy{Concurrency: 1}, func(ctx context.Context, env schema.Envelope) error {
		if call, _ := handlers.CallFrom(ctx); env.Name != "ended" || call.Tenant != "t" || call.Actor != "a" || call.Key != env.Key {
			t.Errorf("report %+v, call %+v", env, call)
		}
		got[env.Key] = string(env.Payload)
		return nil
	})
	for _, name := range []string{"works", "dies", "goes"} {
		publish(t, q, job(name, schema.WithID(name), schema.WithReplyTo("saga", "ended", "ref-"+name), schema.WithTenant("t"), schema.WithActor("a")))
	}
	handlertest.DrainUntilEmpty(t, q)
	for key, want := range map[string]string{
		"works/0/report": `{"ref":"ref-works","id":"works","key":"works","target":"mailer","action":"works","replay":0,"ok":true,"result":{"n":1}}`,
		"dies/0/report":  `{"ref":"ref-dies","id":"dies","key":"dies","target":"mailer","action":"dies","replay":0,"ok":false,"cause":"permanent","reason":"error: the other side is down"}`,
		"goes/0/report":  `{"ref":"ref-goes","id":"goes","key":"goes","target":"mailer","action":"goes","replay":0,"ok":false,"cause":"cancelled","reason":"error: the other side is down"}`,
	} {
		if got[key] != want {
			t.Errorf("report %s is\n%s, want\n%s", key, got[key], want)
		}
	}
	if err := q.Replay(t.Context(), "mailer", "dies"); err != nil {
		t.Fatal(err)
	}
	handlertest.DrainUntilEmpty(t, q)
	if again := got["dies/1/report"]; !strings.Contains(again, `"id":"dies"`) || !strings.Contains(again, `"replay":1`) {
		t.Errorf("report of the replay: %q", again)
	}
}

func TestHooks_see_each_step(t *testing.T) {
	t.Parallel()
	type key struct{}
	var steps []string
	q, _ := newQueue(t, inprocess.Config{Hooks: []handlers.Hooks{{
		Start: func(ctx context.Context, env schema.Envelope) context.Context {
			steps = append(steps, "start "+env.Name)
			return context.WithValue(ctx, key{}, "from start")
		},
		End: func(ctx context.Context, _ schema.Envelope, err error, _ time.Duration) {
			steps = append(steps, fmt.Sprintf("end %v %v", err, ctx.Value(key{})))
		},
		Settled: func(ctx context.Context, _ schema.Envelope, d handlers.Decision) {
			steps = append(steps, fmt.Sprintf("settled %v %v %v", d.Verdict == handlers.Dead, d.Cause, ctx.Value(key{})))
			panic("contained")
		},
	}}})
	target(t, q, "mailer", handlers.Policy{}, func(ctx context.Context, _ schema.Envelope) error {
		steps = append(steps, fmt.Sprint("run ", ctx.Value(key{})))
		return handlers.Permanent(errDown)
	})
	publish(t, q, job("send"))
	handlertest.DrainUntilEmpty(t, q)
	want := []string{"start send", "run from start", "end the other side is down from start", "settled true permanent from start"}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
}
