package publishers_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// OrderShipped is an event. Its name is a part of the topic: lower case, with dots.
type OrderShipped struct {
	Order int `json:"order"`
}

func (OrderShipped) Name() string { return "order.shipped" }

// Watermill's event bus publishes in the transaction that its publisher was made for.
func ExampleOutbox_Publisher() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	store := postgres.New(pool, postgres.Options{})
	outbox := publishers.NewOutbox(store, publishers.Config{})

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		bus, err := cqrs.NewEventBusWithConfig(outbox.Publisher(ctx, tx), cqrs.EventBusConfig{
			Marshaler: cqrs.JSONMarshaler{GenerateName: cqrs.NamedStruct(cqrs.StructName)},
			GeneratePublishTopic: func(e cqrs.GenerateEventPublishTopicParams) (string, error) {
				return "events." + e.EventName, nil
			},
		})
		if err != nil {
			return err
		}
		return bus.Publish(schema.ContextWithOptions(ctx, schema.WithOrderingKey("order-7")), OrderShipped{7})
	})
	if err != nil {
		fmt.Println(err)
	}
	rows, err := store.ListOutbox(ctx, schema.RowFilter{})
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range rows {
		fmt.Printf("%s %s\n", r.Subject, r.Payload)
	}
	// Output:
	// events.internal.order.shipped {"order":7}
}

// SendParcel is a command. Commands are jobs: the topic names the target that does them.
type SendParcel struct {
	Order int `json:"order"`
}

func (SendParcel) Name() string { return "parcel.send" }

// Watermill's command bus asks a target for its work.
func ExampleOutbox_Publisher_commandBus() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	store := postgres.New(pool, postgres.Options{})
	outbox := publishers.NewOutbox(store, publishers.Config{})

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		bus, err := cqrs.NewCommandBusWithConfig(outbox.Publisher(ctx, tx), cqrs.CommandBusConfig{
			Marshaler: cqrs.JSONMarshaler{GenerateName: cqrs.NamedStruct(cqrs.StructName)},
			GeneratePublishTopic: func(c cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
				return "jobs.warehouse." + c.CommandName, nil
			},
		})
		if err != nil {
			return err
		}
		return bus.Send(ctx, SendParcel{7})
	})
	if err != nil {
		fmt.Println(err)
	}
	rows, err := store.ListOutbox(ctx, schema.RowFilter{})
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range rows {
		fmt.Printf("%s %s\n", r.Subject, r.Payload)
	}
	// Output:
	// jobs.warehouse.parcel.send {"order":7}
}
