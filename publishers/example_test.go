package publishers_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

type order struct {
	Number int    `json:"number"`
	Email  string `json:"email"`
}

// An order and its messages commit together, or not at all.
func ExampleOutbox_Publish() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	store := postgres.New(pool, postgres.Options{})
	outbox := publishers.NewOutbox(store, publishers.Config{})

	place := func(o order) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", o.Number); err != nil {
				return err
			}
			if _, err := outbox.Publish(ctx, tx,
				schema.NewJob("mailer", "confirm", o, schema.WithTenant("shop-1")),
				schema.NewEvent("order.placed", o)); err != nil {
				return err
			}
			if o.Email == "" {
				return errors.New("no address")
			}
			return nil
		})
	}
	fmt.Println(place(order{7, "ann@example.org"}))
	fmt.Println(place(order{8, ""}))

	rows, err := store.ListOutbox(ctx, schema.RowFilter{})
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range rows {
		fmt.Printf("%s %s\n", r.Subject, r.Payload)
	}
	// Output:
	// <nil>
	// no address
	// jobs.mailer.confirm {"number":7,"email":"ann@example.org"}
	// events.internal.order.placed {"number":7,"email":"ann@example.org"}
}

// On SQLite, and with database/sql on PostgreSQL (postgres.New(...).SQL()), the transaction is an *sql.Tx.
func ExampleOutbox_Publish_sqlite() {
	write, read, done := exampleSQLite()
	defer done()
	ctx := context.Background()
	outbox := publishers.NewOutbox(sqlite.New(write, read, sqlite.Options{}), publishers.Config{})

	tx, err := write.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", 7); err != nil {
		fmt.Println(err)
	}
	receipts, err := outbox.Publish(ctx, tx, schema.NewJob("mailer", "confirm", order{Number: 7}, schema.WithID("first"), schema.WithKey("confirm-7")))
	fmt.Println(receipts, err)
	receipts, err = outbox.Publish(ctx, tx, schema.NewJob("mailer", "confirm", order{Number: 7}, schema.WithID("again"), schema.WithKey("confirm-7")))
	fmt.Println(receipts, err)
	fmt.Println(tx.Commit())
	outbox.Nudge()
	// Output:
	// [{first false}] <nil>
	// [{first true}] <nil>
	// <nil>
}

// The insert can join a batch of the caller's own, and costs no round trip then.
func ExampleOutbox_Publish_batch() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	store := postgres.New(pool, postgres.Options{})

	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO orders VALUES ($1)", 7)
	err := store.AppendBatch(batch, []schema.Envelope{schema.NewEvent("order.placed", order{Number: 7}, schema.WithID("placed-7"))},
		func(receipts []schema.Receipt, err error) { fmt.Println(receipts, err) })
	if err != nil { // the message is not valid; nothing was added to the batch
		fmt.Println(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
	fmt.Println(err)
	// Output:
	// [{placed-7 false}] <nil>
	// <nil>
}

// Events with the same ordering key reach their subscribers in the order of their commits.
func ExampleOutbox_Publish_ordered() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	store := postgres.New(pool, postgres.Options{})
	outbox := publishers.NewOutbox(store, publishers.Config{})

	inOrder := schema.WithOrderingKey("order-7")
	if _, err := outbox.PublishAlone(ctx,
		schema.NewEvent("order.placed", nil, inOrder, schema.WithPublic()),
		schema.NewEvent("order.paid", nil, inOrder, schema.WithPublic())); err != nil {
		fmt.Println(err)
	}
	rows, err := store.ListOutbox(ctx, schema.RowFilter{Stream: schema.Events})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(rows[0].Subject, rows[1].Subject, rows[0].Slot == rows[1].Slot)
	// Output:
	// events.public.order.placed events.public.order.paid true
}

// A message can wait for its time, and be taken back until then.
func ExampleOutbox_Cancel() {
	pool, done := examplePostgres()
	defer done()
	ctx := context.Background()
	outbox := publishers.NewOutbox(postgres.New(pool, postgres.Options{}), publishers.Config{})

	remind := schema.NewJob("mailer", "remind", order{Number: 7}, schema.WithDueAt(time.Now().Add(24*time.Hour)))
	if _, err := outbox.PublishAlone(ctx, remind); err != nil {
		fmt.Println(err)
	}
	for range 2 {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return outbox.Cancel(ctx, tx, remind.ID) })
		fmt.Println(errors.Is(err, schema.ErrNotFound))
	}
	// Output:
	// false
	// true
}

// What cannot be sent is refused in the caller's transaction, which can go on.
func ExampleOutbox_Publish_invalid() {
	pool, done := examplePostgres()
	defer done()
	outbox := publishers.NewOutbox(postgres.New(pool, postgres.Options{}), publishers.Config{})

	_, err := outbox.PublishAlone(context.Background(), schema.NewJob("Mailer", "send", make([]byte, 2<<20), schema.WithID("7")))
	var invalid *schema.ValidationError
	if errors.As(err, &invalid) {
		for _, f := range invalid.Faults {
			fmt.Println(f)
		}
	}
	// Output:
	// target: "Mailer" must be a-z, 0-9, '-' and '_', starting with a letter or digit
	// payload: too large (length 2097152, limit 983040)
}
