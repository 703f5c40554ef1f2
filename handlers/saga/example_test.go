package saga_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

// Order is the state of the saga of the example.
type Order struct {
	Item, Payment string
}

var (
	charge = schema.JobType[string]{Target: "bank", Action: "charge"}
	refund = schema.JobType[string]{Target: "bank", Action: "refund"}
)

// An order is charged and then fails, because the item is sold out: the bank is asked to refund it.
func Example() {
	orders := saga.New(
		"order",
		saga.Step[Order]{
			Name: "pay",
			Do: func(_ *saga.Context, o Order) (saga.Result[Order], error) {
				return saga.Next(o, "money first", saga.Ask(charge, o.Item)), nil
			},
			OnReport: func(_ *saga.Context, o Order, report schema.Outcome) (_ saga.Result[Order], err error) {
				o.Payment, err = saga.Answer[string](report)
				return saga.Next(o, "paid"), err
			},
			Undo: func(c *saga.Context, o Order) (saga.Result[Order], error) {
				return saga.Next(o, c.Reason, saga.Ask(refund, o.Payment)), nil
			},
		},
		saga.Step[Order]{
			Name: "reserve",
			Do: func(*saga.Context, Order) (saga.Result[Order], error) {
				return saga.Result[Order]{}, saga.Fail("sold out")
			},
		},
	)

	var bank handlers.Actions // calls the bank; here it is only said
	handlers.OnJob(&bank, charge, func(ctx context.Context, item, key string) error { return handlers.Report(ctx, "payment-7") })
	handlers.OnJob(&bank, refund, func(_ context.Context, payment, key string) error {
		fmt.Println("refund", payment)
		return nil
	})

	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millbridge")
	check(err)
	defer os.RemoveAll(dir)
	in, err := embedded.Open(ctx, filepath.Join(dir, "data"), embedded.Options{})
	check(err)
	defer in.Close()
	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
	check(err)
	check(bridge.Target(orders.Target(handlers.Policy{})))
	check(bridge.Target(handlers.Target{Name: "bank", Handler: &bank}))

	_, err = bridge.Publish(ctx, orders.Start("o-7", Order{Item: "lamp"})) // or in a transaction of your own
	check(err)
	_, err = bridge.Drain(ctx) // a service calls Run
	check(err)
	o, err := orders.Load(ctx, in.Store, "o-7")
	check(err)
	fmt.Println(o.Status, "because", o.Reason)
	events, err := in.Store.SagaHistory(ctx, "order", "o-7")
	check(err)
	for _, e := range events {
		fmt.Println(e.N, e.Step, e.Kind)
	}
	// Output:
	// refund payment-7
	// compensated because sold out
	// 1  started
	// 2 pay waiting
	// 3 pay done
	// 4 reserve failed
	// 5 pay undoing
	// 6 pay undone
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
