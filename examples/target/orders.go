package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/millbridge/millbridge/examples/target/carrier"
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
)

// shipment is what the shop tells the world.
type shipment struct {
	Order  string `json:"order"`
	Parcel string `json:"parcel"`
}

var (
	// parcelBooked is the report of a booking.
	parcelBooked = schema.JobType[schema.Outcome]{Target: "orders", Action: "parcel_booked"}
	// orderShipped is for any number of subscribers.
	orderShipped = schema.EventType[shipment]{Name: "order.shipped"}
)

// place takes an order. The order and the job that books its parcel commit together.
func place(ctx context.Context, db *sql.DB, outbox publishers.Publisher[*sql.Tx], order string, grams int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, 'placed', '')`, order); err != nil {
		return err
	}
	book := carrier.Book.New(carrier.Parcel{Order: order, Grams: grams},
		schema.WithKey(order+"/parcel"),
		schema.WithReplyTo(parcelBooked.Target, parcelBooked.Action, order))
	if _, err := outbox.Publish(ctx, tx, book); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	outbox.Nudge()
	return nil
}

// orders returns the target that keeps the shop's own books. Its handler runs in the transaction that marks the message
// as handled: row, event and mark commit together, or none of them.
func orders() handlers.Target {
	var actions handlers.Actions
	handlers.OnJob(&actions, parcelBooked, func(ctx context.Context, o schema.Outcome, _ string) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		if !o.OK {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'no parcel' WHERE number = ?`, o.Ref)
			return err
		}
		var booked carrier.Booked
		if err := json.Unmarshal(o.Result, &booked); err != nil {
			return handlers.Permanent(fmt.Errorf("read the booking: %w", err))
		}
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'shipped', parcel = ? WHERE number = ?`, booked.Number, o.Ref); err != nil {
			return err
		}
		_, err = handlers.Publish(ctx, orderShipped.New(shipment{Order: o.Ref, Parcel: booked.Number}))
		return err
	})
	return handlers.Target{Name: parcelBooked.Target, Handler: &actions, Policy: handlers.Policy{Mode: handlers.ModeTx}}
}
