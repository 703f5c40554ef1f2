package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
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

// A step of a saga: its own row, the mark that the message is handled and the next step's message commit together.
func Example_transaction() {
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
	if _, err := in.DB.ExecContext(ctx, "CREATE TABLE loans (book text, state text)"); err != nil {
		log.Fatal(err)
	}
	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
	if err != nil {
		log.Fatal(err)
	}
	outbox := publishers.NewOutbox(in.Store, publishers.Config{Nudge: bridge.Nudge})

	type loan struct{ Book string }
	var loans, letters handlers.Actions
	handlers.On(&loans, "approve", func(ctx context.Context, args loan, _ string) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO loans VALUES (?, 'approved')", args.Book); err != nil {
			return err
		}
		_, err = outbox.Publish(ctx, tx, schema.NewJob("letters", "send", args))
		return err
	})
	handlers.On(&letters, "send", func(_ context.Context, args loan, _ string) error {
		fmt.Println("send a letter about", args.Book)
		return nil
	})
	for _, t := range []handlers.Target{
		{Name: "loans", Handler: &loans, Policy: handlers.Policy{Mode: handlers.ModeTx}},
		{Name: "letters", Handler: &letters},
	} {
		if err := bridge.Target(t); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := bridge.Publish(ctx, schema.NewJob("loans", "approve", loan{"Middlemarch"})); err != nil {
		log.Fatal(err)
	}
	tally, err := bridge.Drain(ctx)
	fmt.Println("handled", tally.Handled, "error", err)
	// Output:
	// send a letter about Middlemarch
	// handled 2 error <nil>
}

// The same bridge on PostgreSQL and NATS servers. The database has been migrated.
func Example_servers() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	conn, err := nats.Connect(os.Getenv("NATS_URL"), jetstream.ConnectOptions()...)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	store := postgres.New(pool, postgres.Options{})
	defer store.Close()
	bridge, err := router.Open(ctx, router.Config{Store: store, Conn: conn, Replicas: 3})
	if err != nil {
		log.Fatal(err)
	}
	if err := bridge.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
