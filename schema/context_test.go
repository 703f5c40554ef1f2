package schema_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestFromTopic(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"jobs.crm.create":          "job.crm.create",
		"jobs.crm.customer.create": "job.crm.customer.create",
		"events.public.order.paid": "event.public.order.paid",
		"events.internal.paid":     "event.internal.paid",
		"events.order.paid":        "event.internal.order.paid",
		"events.paid":              "event.internal.paid",
	} {
		e, err := schema.FromTopic(topic, schema.NewID(), nil, []byte("x"))
		if err == nil {
			err = e.Validate(0)
		}
		if err != nil || e.Type() != want {
			t.Errorf("%s: %s, %v; want %s", topic, e.Type(), err, want)
		}
	}
	for _, topic := range []string{"", "jobs", "jobs.", "jobs.crm", "events", "events.", "orders", "Jobs.a.b", "replay.a.b"} {
		_, err := schema.FromTopic(topic, schema.NewID(), nil, nil)
		var invalid *schema.ValidationError
		if !errors.As(err, &invalid) || invalid.Faults[0].Field != "topic" {
			t.Errorf("%q: %v, want a fault of the topic", topic, err)
		}
	}
}

func TestContextWithOptions(t *testing.T) {
	t.Parallel()
	base := schema.ContextWithOptions(context.Background(), schema.WithTenant("a"), schema.WithActor("x"))
	one := schema.ContextWithOptions(base, schema.WithTenant("b"))
	two := schema.ContextWithOptions(base, schema.WithTenant("c"))
	for ctx, tenant := range map[context.Context]string{base: "a", one: "b", two: "c"} {
		e, err := schema.FromTopic("events.paid", "id", nil, nil, schema.OptionsFrom(ctx)...)
		if err != nil || e.Tenant != tenant || e.Actor != "x" {
			t.Errorf("tenant %q, actor %q, %v; want %q and x", e.Tenant, e.Actor, err, tenant)
		}
	}
	if opts := schema.OptionsFrom(context.Background()); len(opts) != 0 {
		t.Errorf("%d options from an empty context", len(opts))
	}
}
