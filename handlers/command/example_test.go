package command_test

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/command"
	"github.com/millbridge/millbridge/schema"
)

// The program gets the payload on stdin and the key in its environment; what it prints is the job's outcome.
func ExampleNew() {
	h, err := command.New(command.Config{
		Command: []string{"/bin/sh", "-c", `read -r line; echo "{\"printed\": $line, \"as\": \"$MILLBRIDGE_KEY\"}"`},
		Report:  true,
	})
	if err != nil {
		panic(err)
	}
	job := schema.NewJob("labels", "print", []byte(`{"order":"o-7"}`), schema.WithKey("o-7/label"))
	ctx := handlers.WithCall(context.Background(), handlers.CallOf("labels", job))
	fmt.Println(h.Handle(ctx, job), string(handlers.ReportOf(ctx)))
	// Output: <nil> {"printed":{"order":"o-7"},"as":"o-7/label"}
}
