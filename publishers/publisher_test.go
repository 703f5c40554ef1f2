package publishers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

func TestPublisherGoesWithTheTransaction(t *testing.T) {
	onEach(t, testPublisher[pgx.Tx], testPublisher[*sql.Tx])
}

func testPublisher[Tx any](t *testing.T, d *database[Tx]) {
	msg := message.NewMessage(watermill.NewULID(), []byte("\x00\xff"))
	msg.Metadata = message.Metadata{"a": "l1\nl2"}
	msg.SetContext(schema.ContextWithOptions(t.Context(), schema.WithOrderingKey("7"), schema.WithTenant("t")))
	timed := message.NewMessage(watermill.NewUUID(), nil)
	timed.SetContext(schema.ContextWithOptions(t.Context(), schema.WithTime(d.clock.Add(time.Hour))))
	publish := func(tx Tx) {
		p := d.outbox.Publisher(t.Context(), tx)
		for topic, m := range map[string]*message.Message{"jobs.mail.send": msg, "events.order.placed": timed} {
			if err := p.Publish(topic, m); err != nil {
				t.Error(err)
			}
		}
		if err := p.Publish("nonsense"); err != nil {
			t.Errorf("no messages give %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Publish("events.a", msg); !errors.Is(err, wmsql.ErrPublisherClosed) {
			t.Errorf("after Close: %v, want ErrPublisherClosed", err)
		}
	}
	d.in(t, false, publish)
	d.want(t, 0, 0)
	d.in(t, true, publish)
	d.want(t, 1, 2)
	byID := make(map[string]schema.Envelope)
	for _, e := range d.envelopes(t) {
		byID[e.ID] = e
	}
	e := byID[msg.UUID]
	if e.Subject() != "jobs.mail.send" || e.Metadata["a"] != "l1\nl2" || string(e.Payload) != "\x00\xff" || e.OrderingKey != "7" || e.Tenant != "t" || !e.Time.Equal(d.clock) {
		t.Errorf("the job became %+v", e)
	}
	e = byID[timed.UUID]
	if e.Subject() != "events.internal.order.placed" || !e.Time.Equal(d.clock.Add(time.Hour)) {
		t.Errorf("the event became %+v", e)
	}
	if len(msg.Metadata) != 1 || len(schema.OptionsFrom(msg.Context())) != 2 {
		t.Errorf("publishing changed the message: %+v", msg)
	}
}

// Watermill has no context to pass; the caller's must end the statement all the same.
func TestPublisherUsesTheContext(t *testing.T) {
	onEach(t, testPublisherContext[pgx.Tx], testPublisherContext[*sql.Tx])
}

func testPublisherContext[Tx any](t *testing.T, d *database[Tx]) {
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := d.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := d.outbox.Publisher(ctx, tx)
	if err := p.Publish("events.a", message.NewMessage("one", nil)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := p.Publish("events.a", message.NewMessage("two", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context was cancelled", err)
	}
	_ = d.end(t.Context(), tx, false) // pgx has closed the connection
	d.want(t, 0, 0)
}

// Batches of any size are one unit: nothing, a batch with one bad item, and more than a statement's variables.
func TestC36_Batches(t *testing.T) {
	onEach(t, testBatches[pgx.Tx], testBatches[*sql.Tx])
}

func testBatches[Tx any](t *testing.T, d *database[Tx]) {
	paths := map[string]func(tx Tx, envs []schema.Envelope) error{
		"outbox": func(tx Tx, envs []schema.Envelope) error {
			receipts, err := d.outbox.Publish(t.Context(), tx, envs...)
			if err == nil && len(receipts) != len(envs) {
				return fmt.Errorf("%d receipts for %d messages", len(receipts), len(envs))
			}
			return err
		},
		"watermill": func(tx Tx, envs []schema.Envelope) error {
			msgs := make([]*message.Message, len(envs))
			for i, e := range envs {
				msgs[i] = message.NewMessage(e.ID, e.Payload)
				msgs[i].SetContext(schema.ContextWithOptions(t.Context(), schema.WithTenant(e.Tenant)))
			}
			return d.outbox.Publisher(t.Context(), tx).Publish("jobs.mail.send", msgs...)
		},
	}
	var last int64 // sequence seen
	added := func() []schema.Row {
		t.Helper()
		rows := must[[]schema.Row](t)(d.ListOutbox(t.Context(), schema.RowFilter{After: last, Limit: 1 << 20}))
		if len(rows) > 0 {
			last = rows[len(rows)-1].Seq
		}
		return rows
	}
	for path, publish := range paths {
		sizes := []int{0, 1, 10}
		if path == "watermill" || long { // package schematest has as many for the other one
			sizes = append(sizes, 21_846)
		}
		for _, n := range sizes {
			envs := jobs(n)
			if n > 0 {
				envs[n*4/5].Tenant = longest("t") // of 10 the 8th; of many, one in a chunk after a good one
				d.in(t, true, func(tx Tx) {
					err := publish(tx, envs)
					var invalid *schema.ValidationError
					if !errors.As(err, &invalid) || invalid.ID != envs[n*4/5].ID || invalid.Faults[0].Field != "tenant" {
						t.Errorf("%s, %d messages: error %.200v, want a fault of one message's tenant", path, n, err)
					}
				})
				if rows := added(); len(rows) != 0 {
					t.Errorf("%s, %d messages: %d rows of a batch with a bad item", path, n, len(rows))
				}
				envs[n*4/5].Tenant = ""
			}
			for _, commit := range []bool{false, true} {
				if !commit && n > 1000 {
					continue // smaller ones show that a rollback takes all of it
				}
				d.in(t, commit, func(tx Tx) {
					if err := publish(tx, envs); err != nil {
						t.Fatalf("%s, %d messages: %v", path, n, err)
					}
				})
				rows := added()
				if !commit && len(rows) != 0 || commit && len(rows) != n {
					t.Fatalf("%s, %d messages: %d rows, commit was %v", path, n, len(rows), commit)
				}
				for i, r := range rows { // in the order given
					if r.ID.String() != envs[i].ID {
						t.Fatalf("%s, %d messages: row %d is %s, want %s", path, n, i, r.ID, envs[i].ID)
					}
				}
			}
		}
	}

	if !long {
		return
	}
	const many = 100_000
	before := d.backlog(t)
	d.in(t, true, func(tx Tx) { must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, jobs(many)...)) })
	if n := d.backlog(t) - before; n != many {
		t.Errorf("%d rows, want %d", n, many)
	}
}
