package router_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

// A whole bridge on the embedded default: SQLite and a NATS server in the process, in one directory.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millbridge")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	in, err := embedded.Open(ctx, filepath.Join(dir, "data"), embedded.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
	if err != nil {
		log.Fatal(err)
	}
	var mail handlers.Actions
	handlers.On(&mail, "welcome", func(_ context.Context, args struct{ Name string }, key string) error {
		fmt.Println("welcome,", args.Name)
		return nil
	})
	if err := bridge.Target(handlers.Target{Name: "mail", Handler: &mail}); err != nil {
		log.Fatal(err)
	}
	if _, err := bridge.Publish(ctx, schema.NewJob("mail", "welcome", map[string]string{"name": "Ada"})); err != nil {
		log.Fatal(err)
	}
	tally, err := bridge.Drain(ctx) // a service calls Run, which works until ctx ends
	fmt.Println("sent", tally.Forwarder.Sent, "handled", tally.Handled, "dead", tally.Dead, "error", err)
	// Output:
	// welcome, Ada
	// sent 1 handled 1 dead 0 error <nil>
}
