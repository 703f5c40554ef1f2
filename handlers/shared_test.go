package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestSubscription_takes_what_its_filters_say(t *testing.T) {
	t.Parallel()
	s := handlers.Subscription{Events: []string{"order.placed", "invoice.*", "stock.>"}}
	for name, want := range map[string]bool{
		"order.placed": true, "order": false, "order.placed.late": false, "invoice.paid": true, "invoice": false,
		"invoice.paid.late": false, "stock.low": true, "stock.low.soon": true, "stock": false, "other": false,
	} {
		if s.Takes(name) != want {
			t.Errorf("%s is taken: %v, want %v", name, !want, want)
		}
	}
	if all := (handlers.Subscription{Events: []string{">"}}); !all.Takes("a.b") {
		t.Error("> does not take all")
	}
}

func TestPolicy_rules_are_those_of_the_jobs_type_first(t *testing.T) {
	t.Parallel()
	own := schema.CappedBackoff(time.Minute, 2, time.Hour, 3)
	var a handlers.Actions
	handlers.OnJob(&a, schema.JobType[struct{}]{Target: "crm", Action: "own", Retry: own, Timeout: time.Hour}, func(context.Context, struct{}, string) error { return nil })
	handlers.OnJob(&a, schema.JobType[struct{}]{Target: "crm", Action: "none"}, func(context.Context, struct{}, string) error { return nil })
	p := handlers.Policy{Timeout: time.Second}
	for _, c := range []struct {
		h       handlers.Handler
		env     schema.Envelope
		retry   schema.RetryPolicy
		timeout time.Duration
	}{
		{&a, schema.NewJob("crm", "own", nil), own, time.Hour},
		{&a, schema.NewJob("crm", "none", nil), schema.DefaultRetry, time.Second},
		{&a, schema.NewJob("crm", "unknown", nil), schema.DefaultRetry, time.Second},
		{&a, schema.NewEvent("own", nil), schema.DefaultRetry, time.Second},
		{handlers.HandlerFunc(nil), schema.NewJob("crm", "own", nil), schema.DefaultRetry, time.Second},
	} {
		if retry, timeout := p.Rules(c.h, c.env); retry != c.retry || timeout != c.timeout {
			t.Errorf("%s %s: %+v, %v, want %+v, %v", c.env.Kind, c.env.Name, retry, timeout, c.retry, c.timeout)
		}
	}
}

func TestCallOf_has_what_the_message_says(t *testing.T) {
	t.Parallel()
	env := schema.NewJob("crm", "add", nil, schema.WithID("m-2"), schema.WithKey("k"), schema.WithTenant("t"), schema.WithActor("a"),
		schema.WithRequestID("r"), schema.WithTrace("tp", "ts"))
	env.Replay = &schema.Replay{Handler: "crm", Of: "m-1", Number: 2}
	want := handlers.Call{
		Handler: "crm", ID: "m-2", Key: "k", Tenant: "t", Actor: "a", RequestID: "r", TraceParent: "tp", TraceState: "ts", Replay: 2,
	}
	if got := handlers.CallOf("crm", env); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHookList_begins_with_the_first_and_ends_with_it(t *testing.T) {
	t.Parallel()
	type span struct{}
	var steps []string
	hook := func(name string) handlers.Hooks {
		return handlers.Hooks{
			Start: func(ctx context.Context, _ schema.Envelope) context.Context {
				steps = append(steps, "+"+name)
				return context.WithValue(ctx, span{}, name)
			},
			End: func(ctx context.Context, _ schema.Envelope, _ error, _ time.Duration) {
				steps = append(steps, "-"+ctx.Value(span{}).(string))
			},
			Settled: func(ctx context.Context, _ schema.Envelope, _ handlers.Decision) {
				steps = append(steps, fmt.Sprint("=", ctx.Value(span{}), ctx.Err()))
			},
		}
	}
	l, env := handlers.HookList{hook("a"), {}, hook("b")}, schema.NewJob("crm", "add", nil)
	ctx, cancel := context.WithCancel(t.Context())
	run := l.Start(ctx, slog.New(slog.DiscardHandler), env)
	run.End(nil, 0)
	cancel()
	run.Settled(handlers.Decision{})
	if got := strings.Join(steps, " "); got != "+a +b -b -a =b<nil> =a<nil>" {
		t.Errorf("steps are %s", got)
	}
}
