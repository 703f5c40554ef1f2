package schematest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

var errRollback = errors.New("roll back")

func testAppend[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("commits with the business", func(t *testing.T) {
		s := start(t, open)
		e := schema.NewJob("crm", "create", nil)
		for n, fail := range []error{errRollback, nil} {
			err := s.Store.InTx(s.ctx, func(tx Tx) error {
				s.must(s.Order(s.ctx, tx, n))
				_, err := s.Store.Append(s.ctx, tx, []schema.Envelope{e})
				s.must(err)
				return fail
			})
			s.wants(err, fail)
			orders, err := s.Orders(s.ctx)
			s.must(err)
			if rows := s.waiting(schema.Jobs); orders != n || len(rows) != n {
				t.Fatalf("%d orders and %d messages, want %d of each", orders, len(rows), n)
			}
		}
	})

	t.Run("a panic rolls back", func(t *testing.T) {
		s := start(t, open)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not come through")
				}
			}()
			_ = s.Store.InTx(s.ctx, func(tx Tx) error {
				_, err := s.Store.Append(s.ctx, tx, []schema.Envelope{schema.NewJob("crm", "create", nil)})
				s.must(err)
				panic("handler")
			})
		}()
		s.wantWaiting(schema.Jobs)
		s.publish(schema.NewEvent("paid", nil)) // no connection is lost
	})

	t.Run("nothing is no work", func(t *testing.T) {
		s := start(t, open)
		if receipts := s.publish(); len(receipts) != 0 {
			t.Fatalf("%d receipts", len(receipts))
		}
		s.wantWaiting(schema.Jobs)
	})

	t.Run("everything comes back as it was given", func(t *testing.T) {
		s := start(t, open)
		made := time.Date(2026, 3, 29, 1, 30, 0, 123456789, time.FixedZone("", 5*3600+1800))
		e := schema.NewJob("crm", "customer.create", map[string]string{"name": "Ünal"},
			schema.WithKey(" Key\n ü"), schema.WithOrderingKey("order/1 "), schema.WithTenant("T 1"), schema.WithActor("a@b"),
			schema.WithRequestID("r-1"), schema.WithTime(made), schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x=y"),
			schema.WithMetadata(map[string]string{"Mixed-Case": " a\r\nb\x00\xff ", "empty": "", "long": strings.Repeat("x", 9000)}))
		s.publish(e)
		rows := s.waiting(schema.Jobs)
		if len(rows) != 1 {
			t.Fatalf("%d rows", len(rows))
		}
		got, err := rows[0].Envelope()
		s.must(err)
		e.Time = made.UTC()
		if want := fmt.Sprintf("%+v", e); fmt.Sprintf("%+v", got) != want {
			t.Errorf("got\n%+v\nwant\n%s", got, want)
		}
		if r := rows[0]; r.Slot != e.Slot() || r.OrderLock != schema.NewRow(e).OrderLock || r.Subject != e.Subject() || r.ID != schema.RowID(e.ID) {
			t.Errorf("row %+v does not fit its message", r)
		}
		if age := time.Since(rows[0].CreatedAt); age < -time.Minute || age > time.Minute {
			t.Errorf("created %v ago", age)
		}
	})

	t.Run("the time is filled in", func(t *testing.T) {
		s := start(t, open)
		before := time.Now().Add(-time.Second)
		s.publish(schema.NewEvent("paid", nil))
		e, err := s.waiting(schema.Events)[0].Envelope()
		s.must(err)
		if e.Time.Before(before) || e.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("time %v, want about now", e.Time)
		}
	})

	t.Run("all faults of all messages, and nothing written", func(t *testing.T) {
		s := start(t, open)
		_, err := s.tryPublish(
			schema.NewJob("crm", "create", nil),
			schema.NewJob("CRM", "create me", nil, schema.WithID("one")),
			schema.NewEvent("paid", func() {}, schema.WithID("two"), schema.WithMetadata(map[string]string{"Nats-Msg-Id": "x"})))
		s.wants(err, schema.ErrInvalid)
		if schema.KindOf(err) != schema.Permanent {
			t.Errorf("kind %v, want permanent", schema.KindOf(err))
		}
		for _, want := range []string{"one: target: ", "action: ", "two: metadata[Nats-Msg-Id]: ", "payload: "} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error lacks %q:\n%v", want, err)
			}
		}
		s.wantWaiting(schema.Jobs)
		s.wantWaiting(schema.Events)
	})

	t.Run("the payload limit is the database's", func(t *testing.T) {
		s := start(t, open)
		big := schema.NewJob("crm", "create", bytes.Repeat([]byte("x"), 1001))
		s.publish(big)
		s.must(s.Store.SetMaxPayload(s.ctx, 1000))
		_, err := s.tryPublish(big)
		var invalid *schema.ValidationError
		if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Length != 1001 || invalid.Faults[0].Limit != 1000 {
			t.Fatalf("error %v, want length 1001 and limit 1000", err)
		}
		for _, n := range []int{0, -1, 65 << 20} {
			if err := s.Store.SetMaxPayload(s.ctx, n); err == nil {
				t.Errorf("a limit of %d bytes was taken", n)
			}
		}
		if info, err := s.Store.Info(s.ctx); err != nil || info.MaxPayload != 1000 {
			t.Errorf("limit %d, %v; want 1000", info.MaxPayload, err)
		}
	})

	t.Run("replays travel with the jobs", func(t *testing.T) {
		s := start(t, open)
		e := schema.NewEvent("paid", nil, schema.WithID("again"), schema.WithKey("k"))
		e.Replay = &schema.Replay{Handler: "mailer", Of: "first", Number: 2}
		s.publish(e)
		rows := s.waiting(schema.Jobs)
		if len(rows) != 1 || rows[0].Subject != "replay.mailer.paid" {
			t.Fatalf("rows %+v", rows)
		}
	})
}
