// Command publish-only is a service that commits business rows and messages together and does nothing else: it links
// neither NATS nor SQLite. A bridge that runs elsewhere (millbridge run) sends what it has committed.
//
//	millbridge migrate up --database-url "$DATABASE_URL"
//	DATABASE_URL=postgres://... go run ./examples/publish-only
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "publish-only:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	store := postgres.New(pool, postgres.Options{})
	defer store.Close()
	if err := store.Check(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS orders
		(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, cents int NOT NULL)`); err != nil {
		return fmt.Errorf("create the shop's table: %w", err)
	}

	outbox := publishers.NewOutbox(store, publishers.Config{})
	id, err := placeOrder(ctx, pool, outbox, order{Customer: "ada@example.com", Cents: 4200})
	if err != nil {
		return err
	}
	fmt.Printf("order %d is committed, and so are its messages\n", id)
	return nil
}

// placeOrder commits the order, a job for the CRM and an event for whom it may concern: all of them or nothing.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, outbox *publishers.Outbox[pgx.Tx], o order) (int64, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit it has nothing to do

	const insert = `INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id`
	if err := tx.QueryRow(ctx, insert, o.Customer, o.Cents).Scan(&o.ID); err != nil {
		return 0, fmt.Errorf("insert the order: %w", err)
	}
	customer := schema.WithOrderingKey(o.Customer) // one customer's messages arrive in the order of the commits
	_, err = outbox.Publish(ctx, tx,
		schema.NewJob("crm", "customer.ordered", o, customer),
		schema.NewEvent("order.placed", o, customer, schema.WithPublic()))
	if err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	outbox.Nudge()
	return o.ID, nil
}
