package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
)

// Order is what a customer buys.
type Order struct {
	Number   int    `json:"order"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
	Archived bool   `json:"archived"` // this one also goes to the archive
	Refused  bool   `json:"-"`        // the bank says no, after everything was written
}

// errRefused is what makes the shop roll an order back.
var errRefused = errors.New("the bank refused the card")

// shopTables are the shop's own. They live in the same database as the outbox: that is all the outbox asks for.
const shopTables = `
	CREATE TABLE IF NOT EXISTS shop_orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL);
	CREATE TABLE IF NOT EXISTS shop_payments (number INTEGER PRIMARY KEY, cents INTEGER NOT NULL);`

// Shop takes orders.
type Shop struct {
	db     *sql.DB
	outbox *publishers.Outbox[*sql.Tx]
}

// Place commits an order and its messages together, or neither.
func (s *Shop) Place(ctx context.Context, o Order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()

	if _, err := tx.ExecContext(ctx, "INSERT INTO shop_orders VALUES (?, ?, ?)", o.Number, o.Customer, o.Cents); err != nil {
		return err
	}
	if _, err := s.outbox.Publish(ctx, tx, messagesOf(o)...); err != nil {
		return err
	}
	if o.Refused {
		return errRefused // the row and the messages vanish together
	}
	return tx.Commit()
}

// messagesOf says what is to happen because of an order.
func messagesOf(o Order) []schema.Envelope {
	key := func(what string) schema.Option { return schema.WithKey(fmt.Sprintf("order-%d-%s", o.Number, what)) }
	messages := []schema.Envelope{
		schema.NewJob("billing", "charge", o, key("charge")),
		schema.NewJob("mail", "receipt.send", o, key("receipt")),
		schema.NewJob("shipping", "parcel.book", o, key("parcel")),
		schema.NewEvent("order.placed", o, schema.WithOrderingKey(o.Customer)),
	}
	if o.Archived {
		messages = append(messages, schema.NewJob("archive", "store", o, key("archive")))
	}
	return messages
}

// Books is what the shop's own tables say.
type Books struct {
	Orders   int64 `json:"orders"`
	Payments int64 `json:"payments"`
}

// Books reads the shop's tables back.
func (s *Shop) Books(ctx context.Context) (b Books, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM shop_orders), (SELECT count(*) FROM shop_payments)").Scan(&b.Orders, &b.Payments)
	return b, err
}
