package natsrequest_test

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrequest"
	"github.com/millbridge/millbridge/schema"
)

// The action is the end of the subject; the key tells the service that it has done the work before.
func ExampleNew() {
	rooms, err := natsrequest.New(natsrequest.Config{
		Settings: natslink.Settings{URLs: []string{"nats://rooms.example:4222"}},
		Prefix:   "rooms",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	target := handlers.Target{Name: "rooms", Handler: rooms}
	if err := target.Validate(); err != nil {
		fmt.Println(err)
	}

	job := schema.NewJob("rooms", "book", map[string]string{"day": "Monday"}, schema.WithKey("o-7/room"))
	previews, err := rooms.(handlers.Previewer).Preview(context.Background(), job)
	fmt.Println(previews[0].Do, previews[0].Header[schema.HeaderKey], previews[0].Body, err)
	// Output: request rooms.book o-7/room {"day":"Monday"} <nil>
}
