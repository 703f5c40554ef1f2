package natsrelay_test

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrelay"
	"github.com/millbridge/millbridge/schema"
)

// Orders that are placed here become events of another Millbridge.
func ExampleNew() {
	pass, err := natsrelay.New(natsrelay.Config{
		Settings: natslink.Settings{URLs: []string{"tls://branch.example:4222"}},
		Origin:   "head-office",
		Prefix:   "mb",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	toBranch := handlers.Subscription{
		Name: "to-branch", Events: []string{"order.>"}, Handler: pass, Policy: handlers.Policy{Ordered: true},
	}
	if err := toBranch.Validate(); err != nil {
		fmt.Println(err)
	}

	event := schema.NewEvent("order.placed", map[string]int{"number": 7}, schema.WithOrderingKey("7"))
	previews, err := pass.(handlers.Previewer).Preview(context.Background(), event)
	fmt.Println(previews[0].Do, "via", previews[0].Header[schema.HeaderVia], err)

	event.Via = []string{"branch", "head-office"}
	err = pass.Handle(context.Background(), event)
	fmt.Println(err)
	// Output:
	// publish mb.events.internal.order.placed via head-office <nil>
	// pass on: loop: the message has passed head-office before (branch head-office)
}
