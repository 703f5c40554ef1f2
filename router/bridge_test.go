package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

func TestBridge_handles_jobs_and_events(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var jobs, stats, audit calls
		b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error { jobs.add(env); return nil })
		for name, seen := range map[string]*calls{"stats": &stats, "audit": &audit} {
			events := []string{"order.placed"}
			if name == "audit" {
				events = []string{">"}
			}
			err := bridge.Subscribe(handlers.Subscription{Name: name, Events: events, Handler: handlers.HandlerFunc(
				func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })})
			if err != nil {
				t.Fatal(err)
			}
		}
		b.run(bridge)
		b.eventually(func() error {
			if h := bridge.Health(t.Context()); !h.OK() {
				return fmt.Errorf("%v", h.Problems)
			}
			return nil
		})
		job := schema.NewJob("billing", "charge", map[string]int{"cents": 5}, schema.WithTenant("t1"), schema.WithActor("ann"),
			schema.WithMetadata(map[string]string{"colour": "grün"}))
		b.publish(bridge, job, schema.NewEvent("order.placed", "x"), schema.NewEvent("invoice.sent", "y", schema.WithPublic()))
		b.eventually(jobs.reaches(1))
		b.eventually(stats.reaches(1))
		b.eventually(audit.reaches(2))
		got := jobs.all()[0]
		if got.ID != job.ID || got.Name != "charge" || got.Target != "billing" || got.Tenant != "t1" || got.Actor != "ann" ||
			got.Metadata["colour"] != "grün" || string(got.Payload) != `{"cents":5}` || got.Source == "" || got.Time.IsZero() {
			t.Errorf("the handler got %+v", got)
		}
		if e := stats.all()[0]; e.Name != "order.placed" || e.Visibility != schema.Internal {
			t.Errorf("stats got %+v", e)
		}
		b.awaitNoJobs()
		if n := len(b.letters()); n != 0 || stats.count() != 1 || audit.count() != 2 {
			t.Errorf("%d letters, stats %d, audit %d", n, stats.count(), audit.count())
		}
	})
}

func TestBridge_subscription_starts_where_it_says(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		first := b.open()
		b.publish(first, schema.NewEvent("order.placed", "old"))
		if _, err := first.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		bridge := b.open()
		var fresh, all calls
		for name, s := range map[string]handlers.Subscription{
			"fresh": {From: handlers.FromNew, Handler: handlers.HandlerFunc(func(_ context.Context, e schema.Envelope) error { fresh.add(e); return nil })},
			"all":   {From: handlers.FromAll, Handler: handlers.HandlerFunc(func(_ context.Context, e schema.Envelope) error { all.add(e); return nil })},
		} {
			s.Name, s.Events = name, []string{"order.*"}
			if err := bridge.Subscribe(s); err != nil {
				t.Fatal(err)
			}
		}
		stop := b.run(bridge)
		b.eventually(all.reaches(1))
		for _, h := range bridge.Health(t.Context()).Handlers {
			if h.Name == "fresh" && h.Oldest != 0 {
				t.Errorf("the oldest unhandled event of fresh is %v old", h.Oldest)
			}
		}
		b.publish(bridge, schema.NewEvent("order.placed", "new"))
		b.eventually(all.reaches(2))
		b.eventually(fresh.reaches(1))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		// What is published while nobody runs waits for both.
		b.publish(bridge, schema.NewEvent("order.placed", "newer"))
		b.run(bridge)
		b.eventually(all.reaches(3))
		b.eventually(fresh.reaches(2))
		if got := fresh.all(); string(got[0].Payload) != `"new"` || string(got[1].Payload) != `"newer"` {
			t.Errorf("fresh got %s and %s", got[0].Payload, got[1].Payload)
		}
	})
}

func TestBridge_refuses_names_that_clash(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	noop := handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil })
	if err := bridge.Target(handlers.Target{Name: "mail", Handler: noop}); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"target":       bridge.Target(handlers.Target{Name: "mail", Handler: noop}),
		"subscription": bridge.Subscribe(handlers.Subscription{Name: "mail", Events: []string{">"}, Handler: noop}),
	} {
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), `"mail": that is the name of a target`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.run(bridge)
	b.eventually(func() error {
		if err := bridge.Target(handlers.Target{Name: "late", Handler: noop}); err == nil || !strings.Contains(err.Error(), router.ErrBusy.Error()) {
			return fmt.Errorf("a target was added to a bridge that runs: %v", err)
		}
		return nil
	})
}

func TestOpen_reports_all_faults(t *testing.T) {
	t.Parallel()
	_, err := router.Open(t.Context(), router.Config{
		Subjects: schema.Subjects{Prefix: "A B"}, Replicas: 7, CloseTimeout: -1, Lease: 1, AckWait: -2, Heartbeat: 3,
	})
	for _, want := range []string{"store: there is none", "conn: there is none", "prefix", "replicas is 7", "close timeout is -1ns", "lease is 1ns", "ack wait is -2ns", "heartbeat is 3ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestDrain_works_until_nothing_is_due(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var steps calls
		patient := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 3, Base: time.Hour, Factor: 1}}
		b.target(bridge, "steps", quick(3), func(ctx context.Context, env schema.Envelope) error {
			if steps.add(env); env.Name == "first" { // a handler that publishes
				_, err := bridge.Publish(ctx, schema.NewJob("steps", "second", nil))
				return err
			}
			return nil
		})
		b.target(bridge, "later", patient, func(context.Context, schema.Envelope) error { return errFlaky })
		b.target(bridge, "dead", quick(1), func(context.Context, schema.Envelope) error { return errFlaky })
		b.publish(bridge, schema.NewJob("steps", "first", nil), schema.NewJob("later", "x", nil), schema.NewJob("dead", "x", nil),
			schema.NewJob("steps", "scheduled", nil, schema.WithDueAt(time.Now().Add(time.Hour))))
		tally, err := bridge.Drain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tally.Forwarder.Sent != 4 || tally.Counts != (router.Counts{Handled: 2, Retried: 1, Dead: 1}) {
			t.Errorf("tally is %+v", tally)
		}
		names := []string{}
		for _, env := range steps.all() {
			names = append(names, env.Name)
		}
		if !slices.Equal(names, []string{"first", "second"}) {
			t.Errorf("steps were %q", names)
		}
		if tally, err = bridge.Drain(t.Context()); err != nil || tally.Counts != (router.Counts{}) || tally.Forwarder.Sent != 0 {
			t.Errorf("a second drain did %+v, error %v", tally, err)
		}
	})
}
