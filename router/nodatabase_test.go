package router_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// A bridge without a database handles each key once, counts attempts and buries, and refuses what it cannot do.
func TestNoDatabase_handles_and_refuses(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	sender := b.open()
	bridge := b.open(func(c *router.Config) { c.Store, c.NoForward = nil, true })
	if _, err := router.Open(t.Context(), router.Config{Conn: b.conn}); err == nil || !strings.Contains(err.Error(), "store: there is none") {
		t.Errorf("a bridge that forwards was opened without a database: %v", err)
	}
	for what, policy := range map[string]handlers.Policy{
		"mode tx": {Mode: handlers.ModeTx}, "rate": {Rate: 1}, "ordered": {Ordered: true}, "breaker": {Breaker: handlers.Breaker{Failures: 1}},
		"breaker.disable_after": {Breaker: handlers.Breaker{DisableAfter: 1}},
	} {
		err := bridge.Target(handlers.Target{Name: "x", Policy: policy, Handler: handlers.HandlerFunc(nil)})
		if err == nil || !strings.Contains(err.Error(), what) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: %v", what, err)
		}
	}
	var seen calls
	b.target(bridge, "billing", quick(2), func(ctx context.Context, env schema.Envelope) error {
		seen.add(env)
		if env.Name == "dies" || env.Name == "again" && handlers.Attempt(ctx) == 1 {
			return errFlaky
		}
		return nil
	})
	b.publish(sender, schema.NewJob("billing", "lives", nil, schema.WithKey("k")), schema.NewJob("billing", "dies", nil),
		schema.NewJob("billing", "again", nil), schema.NewJob("billing", "asks", nil, schema.WithReplyTo("collector", "heard", "r")))
	if _, err := sender.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	tally, err := bridge.Drain(t.Context())
	for err == nil && b.waiting(schema.Jobs, "jobs.>") > 0 { // the retries were not due
		_, err = bridge.Drain(t.Context())
	}
	if err != nil || seen.count() != 5 {
		t.Errorf("tally %+v, %d calls, error %v", tally, seen.count(), err)
	}
	for _, l := range b.awaitLetters(2) {
		switch {
		case l.Cause == schema.CauseExhausted && l.Attempts == 2:
		case l.Cause == schema.CausePermanent && strings.Contains(l.Reason, "no database"):
		default:
			t.Errorf("letter %+v", l.DeadLetter)
		}
	}
}
