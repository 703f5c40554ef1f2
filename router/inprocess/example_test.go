package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// An application publishes through an interface. With publishers.NewOutbox(store, publishers.Config{}) in place of the
// first line its messages go through the database; nothing else changes.
func ExampleQueue() {
	var out publishers.Publisher[pgx.Tx] = newMailQueue()
	ctx := context.Background()
	var tx pgx.Tx // the application's; this queue ignores it
	receipts, err := out.Publish(ctx, tx, schema.NewJob("mailer", "send", "hello", schema.WithID("7")))
	fmt.Println(receipts, err)
	// Output:
	// [{7 false}] <nil>
}

func newMailQueue() *inprocess.Queue[pgx.Tx] {
	return inprocess.New[pgx.Tx](inprocess.Config{AllowLoss: true})
}

// In a test nothing is waited for: the clock moves to the next attempt.
func ExampleQueue_DrainUntilEmpty() {
	queue := inprocess.New[struct{}](inprocess.Config{Clock: handlertest.NewClock(time.Time{})})
	err := queue.Target(handlers.Target{Name: "mailer", Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
		if handlers.Attempt(ctx) < 12 {
			return errors.New("the mail server is down")
		}
		fmt.Printf("sent %s at attempt %d\n", env.Payload, handlers.Attempt(ctx))
		return nil
	})})
	if err != nil {
		fmt.Println(err)
	}
	ctx := context.Background()
	if _, err := queue.PublishAlone(ctx, schema.NewJob("mailer", "send", "hello"), schema.NewJob("fax", "send", "hello")); err != nil {
		fmt.Println(err)
	}
	tally, err := queue.DrainUntilEmpty(ctx)
	fmt.Println(tally.Handled, tally.Retried, tally.Dead, tally.Parked, err)
	fmt.Println(queue.Parked()[0].Reason)
	// Output:
	// sent "hello" at attempt 12
	// 1 11 0 1 <nil>
	// there is no target fax here; there are mailer
}

// Run is for production, where messages must not be lost unless that is meant.
func ExampleQueue_Run() {
	queue := inprocess.New[struct{}](inprocess.Config{})
	fmt.Println(queue.Run(context.Background()))
	fmt.Println(publishers.RequireDurable(context.Background(), queue))
	// Output:
	// run in-process queue: the in-process queue loses its messages when the process ends: publish through publishers.NewOutbox and run a bridge, or set Config.AllowLoss if that is meant
	// require durability: the path is too weak: it gives memory (the in-process queue is lost when the process ends, and ignores the transaction): this program publishes only through a database
}
