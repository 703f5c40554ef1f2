package handlers_test

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func ExampleOn() {
	type charge struct {
		Order string `json:"order"`
		Cents int    `json:"cents"`
	}
	var billing handlers.Actions
	handlers.On(&billing, "charge", func(_ context.Context, args charge, key string) error {
		fmt.Printf("charge %d cents for %s, key %s\n", args.Cents, args.Order, key)
		return nil
	})
	job := schema.NewJob("billing", "charge", charge{"o-7", 1250}, schema.WithKey("o-7/charge"))
	fmt.Println(billing.Handle(context.Background(), job))
	fmt.Println(billing.Handle(context.Background(), schema.NewJob("billing", "refund", nil)))
	// Output:
	// charge 1250 cents for o-7, key o-7/charge
	// <nil>
	// target "billing" has no action "refund"; it has charge
}
