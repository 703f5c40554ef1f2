// Command quickstart is the program of the README: a business row and a job in one transaction, and the handler of the
// job, on the embedded default.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

func main() {
	dir, err := os.MkdirTemp("", "millbridge-quickstart-")
	check(err)
	defer os.RemoveAll(dir)
	quickstart(context.Background(), filepath.Join(dir, "data"))
}

// quickstart is shown in the README as it stands here.
func quickstart(ctx context.Context, dir string) {
	in, err := embedded.Open(ctx, dir, embedded.Options{}) // SQLite and NATS in this process
	check(err)
	defer in.Close()
	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
	check(err)

	var mail handlers.Actions // a target: its actions, and a function for each
	handlers.On(&mail, "welcome", func(ctx context.Context, args struct{ Name string }, key string) error {
		fmt.Println("welcome,", args.Name) // an error is tried again; what is done is not done twice
		return nil
	})
	check(bridge.Target(handlers.Target{Name: "mail", Handler: &mail}))

	outbox := publishers.NewOutbox(in.Store, publishers.Config{Nudge: bridge.Nudge})
	tx, err := in.DB.BeginTx(ctx, nil) // your transaction, with your rows
	check(err)
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, `CREATE TABLE customers AS SELECT 'Ada' AS name`)
	check(err)
	_, err = outbox.Publish(ctx, tx, schema.NewJob("mail", "welcome", map[string]string{"name": "Ada"}))
	check(err)
	check(tx.Commit()) // both exist, or neither

	_, err = bridge.Drain(ctx) // until nothing is left to do; a service calls bridge.Run
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
