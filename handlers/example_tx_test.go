package handlers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// shop is a store with a table of its own, as a bridge on SQLite has.
type shop struct {
	*sqlite.Store
	write, read *sql.DB
	dir         string
}

func openShop(ctx context.Context) *shop {
	dir, err := os.MkdirTemp("", "millbridge")
	must(err)
	open := func(options string) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"+options)
		must(err)
		return db
	}
	s := &shop{write: open("&_pragma=synchronous(FULL)&_txlock=immediate"), read: open("&_pragma=query_only(1)"), dir: dir}
	s.write.SetMaxOpenConns(1)
	s.Store = sqlite.New(s.write, s.read, sqlite.Options{})
	_, _, err = s.MigrateUp(ctx)
	must(err)
	_, err = s.write.ExecContext(ctx, "CREATE TABLE invoices (number text PRIMARY KEY, cents int)")
	must(err)
	return s
}

func (s *shop) close() {
	must(errors.Join(s.write.Close(), s.read.Close(), os.RemoveAll(s.dir)))
}

// run runs a handler as a bridge does in ModeTx: in a transaction that also marks the message as handled.
func (s *shop) run(ctx context.Context, h handlers.Handler, env schema.Envelope) error {
	return s.Unit(ctx, func(unit schema.Unit) error {
		return h.Handle(handlers.WithCall(ctx, handlers.Call{Handler: env.Target, Key: env.IdempotencyKey(), Tenant: env.Tenant, Unit: unit}), env)
	})
}

// show prints what has committed.
func (s *shop) show(ctx context.Context) {
	var invoices int
	must(s.read.QueryRowContext(ctx, "SELECT count(*) FROM invoices").Scan(&invoices))
	rows, err := s.ListOutbox(ctx, schema.RowFilter{})
	must(err)
	fmt.Printf("%d invoices, %d messages\n", invoices, len(rows))
	for _, r := range rows {
		fmt.Println(r.Subject)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// With ModeTx a handler's rows commit together with the mark that its message is handled.
func ExampleTx() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	var billing handlers.Actions
	handlers.OnJob(&billing, Charge, func(ctx context.Context, args charge, _ string) error {
		tx, err := handlers.Tx[*sql.Tx](ctx) // pgx.Tx on PostgreSQL
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO invoices VALUES (?, ?)", args.Order, args.Cents); err != nil {
			return err
		}
		if args.Cents < 0 {
			return handlers.Permanent(errors.New("less than nothing"))
		}
		return nil
	})
	fmt.Println(s.run(ctx, &billing, Charge.New(charge{"o-7", 1250})))
	fmt.Println(s.run(ctx, &billing, Charge.New(charge{"o-8", -1})))
	s.show(ctx)
	// Output:
	// <nil>
	// less than nothing
	// 1 invoices, 0 messages
}

// What a handler publishes exists if and only if its run completes.
func ExamplePublish() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	paid := schema.EventType[charge]{Name: "invoice.paid"}
	var billing handlers.Actions
	handlers.OnJob(&billing, Charge, func(ctx context.Context, args charge, key string) error {
		_, err := handlers.Publish(ctx,
			paid.New(args, schema.WithKey(key)),
			schema.NewJob("mail", "receipt", args, schema.WithKey(key+"/receipt")))
		if err == nil && args.Order == "o-8" {
			err = errors.New("something fails after it")
		}
		return err
	})
	fmt.Println(s.run(ctx, &billing, Charge.New(charge{"o-7", 1250}, schema.WithTenant("shop-1"))))
	fmt.Println(s.run(ctx, &billing, Charge.New(charge{"o-8", 1250})))
	s.show(ctx)
	// Output:
	// <nil>
	// something fails after it
	// 0 invoices, 2 messages
	// events.internal.invoice.paid
	// jobs.mail.receipt
}
