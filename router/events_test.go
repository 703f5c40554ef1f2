package router_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// An event has as many receivers as there are: each for itself, and none is no fault.
func TestEvents_for_many_and_for_none(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	var mail, stats calls
	for name, h := range map[string]handlers.HandlerFunc{
		"mail":  func(_ context.Context, e schema.Envelope) error { mail.add(e); return nil },
		"stats": func(_ context.Context, e schema.Envelope) error { stats.add(e); return nil },
		"audit": func(context.Context, schema.Envelope) error { return handlers.Permanent(errors.New("no such book")) },
	} {
		if err := bridge.Subscribe(handlers.Subscription{Name: name, Events: []string{"order.placed"}, From: handlers.FromAll, Handler: h}); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(bridge, schema.NewEvent("order.placed", "for three"), schema.NewEvent("nobody.cares", "for none"))
	tally, err := bridge.Drain(t.Context())
	if err != nil || tally.Forwarder.Sent != 2 || tally.Counts != (router.Counts{Handled: 2, Dead: 1}) {
		t.Errorf("tally %+v, error %v", tally, err)
	}
	if mail.count() != 1 || stats.count() != 1 {
		t.Errorf("mail %d, stats %d", mail.count(), stats.count())
	}
	if letters := b.letters(); len(letters) != 1 {
		t.Errorf("%d letters, want that of audit alone", len(letters))
	}
}

// Two events of other names may be published with one key: each is handled.
func TestEvents_of_two_names_with_one_key(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		if err := bridge.Subscribe(handlers.Subscription{
			Name: "mail", Events: []string{"order.*"}, From: handlers.FromAll,
			Handler: handlers.HandlerFunc(func(_ context.Context, e schema.Envelope) error { seen.add(e); return nil }),
		}); err != nil {
			t.Fatal(err)
		}
		key := schema.WithKey("order-7")
		for _, again := range []bool{false, true} {
			for _, r := range b.publish(bridge, schema.NewEvent("order.placed", "p", key), schema.NewEvent("order.cancelled", "c", key)) {
				if r.Existing != again {
					t.Errorf("receipt %+v, want existing %v", r, again)
				}
			}
		}
		if _, err := bridge.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen.count() != 2 || len(b.letters()) != 0 {
			t.Errorf("%d calls, %d letters", seen.count(), len(b.letters()))
		}
	})
}
