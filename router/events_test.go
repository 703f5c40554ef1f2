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
