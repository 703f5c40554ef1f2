package publishers_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

type orderPlaced struct {
	Order int `json:"order"`
}

func (orderPlaced) Name() string { return "order.placed" }

type sendMail struct {
	To string `json:"to"`
}

func (sendMail) Name() string { return "send" }

var marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.NamedStruct(cqrs.StructName)}

func eventBus(p message.Publisher) (*cqrs.EventBus, error) {
	return cqrs.NewEventBusWithConfig(p, cqrs.EventBusConfig{
		Marshaler: marshaler,
		GeneratePublishTopic: func(e cqrs.GenerateEventPublishTopicParams) (string, error) {
			return "events." + e.EventName, nil
		},
	})
}

func commandBus(p message.Publisher) (*cqrs.CommandBus, error) {
	return cqrs.NewCommandBusWithConfig(p, cqrs.CommandBusConfig{
		Marshaler: marshaler,
		GeneratePublishTopic: func(c cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
			return "jobs.mailer." + c.CommandName, nil
		},
	})
}

func TestBuses(t *testing.T) {
	onEach(t, testBuses[pgx.Tx], testBuses[*sql.Tx])
}

func testBuses[Tx any](t *testing.T, d *database[Tx]) {
	send := func(tx Tx) {
		publisher := d.outbox.Publisher(t.Context(), tx)
		events := must[*cqrs.EventBus](t)(eventBus(publisher))
		commands := must[*cqrs.CommandBus](t)(commandBus(publisher))
		ctx := schema.ContextWithOptions(t.Context(), schema.WithOrderingKey("order-7"), schema.WithTenant("t"))
		if err := events.Publish(ctx, orderPlaced{7}); err != nil {
			t.Error(err)
		}
		if err := commands.Send(context.Background(), sendMail{"ann"}); err != nil {
			t.Error(err)
		}
	}
	d.in(t, false, send)
	d.want(t, 0, 0)
	d.in(t, true, send)
	d.want(t, 1, 2)
	envs := d.envelopes(t)
	if e := envs[0]; e.Subject() != "events.internal.order.placed" || string(e.Payload) != `{"order":7}` || e.OrderingKey != "order-7" || e.Tenant != "t" {
		t.Errorf("the event became %+v", e)
	}
	if e := envs[1]; e.Subject() != "jobs.mailer.send" || string(e.Payload) != `{"to":"ann"}` || e.OrderingKey != "" {
		t.Errorf("the command became %+v", e)
	}
}
