package publishers_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

func TestPublishGoesWithTheTransaction(t *testing.T) {
	onEach(t, testPublish[pgx.Tx], testPublish[*sql.Tx])
}

func testPublish[Tx any](t *testing.T, d *database[Tx]) {
	job := schema.NewJob("mail", "send", map[string]int{"n": 1}, schema.WithTenant("t"), schema.WithActor("ann"), schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"))
	event := schema.NewEvent("order.placed", []byte("x"), schema.WithPublic(), schema.WithOrderingKey("7"), schema.WithTime(d.clock.Add(-time.Hour)))
	d.in(t, false, func(tx Tx) { must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, job, event)) })
	d.want(t, 0, 0)
	d.in(t, true, func(tx Tx) {
		got := must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, job, event))
		if want := []schema.Receipt{{ID: job.ID}, {ID: event.ID}}; !slices.Equal(got, want) {
			t.Errorf("receipts %v, want %v", got, want)
		}
	})
	d.want(t, 1, 2)
	envs := d.envelopes(t)
	if e := envs[0]; e.ID != job.ID || e.Tenant != "t" || e.Actor != "ann" || e.TraceParent != job.TraceParent || e.TraceState != "a=b" || string(e.Payload) != `{"n":1}` {
		t.Errorf("the job became %+v", e)
	}
	if !envs[0].Time.Equal(d.clock) {
		t.Errorf("the job's time is %v, want the clock's %v", envs[0].Time, d.clock)
	}
	if e := envs[1]; e.ID != event.ID || e.Visibility != schema.Public || e.OrderingKey != "7" || !e.Time.Equal(event.Time) {
		t.Errorf("the event became %+v", e)
	}
	if n := d.nudges.Load(); n != 0 {
		t.Errorf("%d nudges before anybody could know of the commit", n)
	}
	d.outbox.Nudge()
	if n := d.nudges.Load(); n != 1 {
		t.Errorf("%d nudges, want 1", n)
	}
}

func TestSavepointTakesItsMessagesAlong(t *testing.T) {
	onEach(t, testSavepoint[pgx.Tx], testSavepoint[*sql.Tx])
}

func testSavepoint[Tx any](t *testing.T, d *database[Tx]) {
	msgs := jobs(3)
	publish := func(tx Tx, e schema.Envelope) { must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, e)) }
	statement := func(tx Tx, s string) {
		t.Helper()
		if err := d.exec(t.Context(), tx, s); err != nil {
			t.Fatal(err)
		}
	}
	d.in(t, true, func(tx Tx) {
		publish(tx, msgs[0])
		statement(tx, "SAVEPOINT mine")
		statement(tx, "INSERT INTO orders VALUES (2)")
		publish(tx, msgs[1])
		statement(tx, "ROLLBACK TO SAVEPOINT mine")
		publish(tx, msgs[2])
	})
	d.want(t, 1, 2)
	if envs := d.envelopes(t); envs[0].ID != msgs[0].ID || envs[1].ID != msgs[2].ID {
		t.Errorf("got %s and %s, want %s and %s", envs[0].ID, envs[1].ID, msgs[0].ID, msgs[2].ID)
	}
}

func TestPublishAlone(t *testing.T) {
	onEach(t, testAlone[pgx.Tx], testAlone[*sql.Tx])
}

func testAlone[Tx any](t *testing.T, d *database[Tx]) {
	d.nudged = func() { d.want(t, 0, 2) } // committed already
	envs := jobs(2)
	got := must[[]schema.Receipt](t)(d.outbox.PublishAlone(t.Context(), envs...))
	if want := []schema.Receipt{{ID: envs[0].ID}, {ID: envs[1].ID}}; !slices.Equal(got, want) {
		t.Errorf("receipts %v, want %v", got, want)
	}
	if e := d.envelopes(t)[0]; !e.Time.Equal(d.clock) {
		t.Errorf("time is %v, want the clock's %v", e.Time, d.clock)
	}
	if _, err := d.outbox.PublishAlone(t.Context()); err != nil {
		t.Errorf("no messages give %v", err)
	}
	if _, err := d.outbox.PublishAlone(t.Context(), schema.NewJob("mail", "send", nil), schema.NewJob("", "send", nil)); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("a bad message gives %v, want ErrInvalid", err)
	}
	d.want(t, 0, 2)
	if n := d.nudges.Load(); n != 1 {
		t.Errorf("%d nudges, want 1", n)
	}
}

func TestIdempotencyKey(t *testing.T) {
	onEach(t, testKey[pgx.Tx], testKey[*sql.Tx])
}

func testKey[Tx any](t *testing.T, d *database[Tx]) {
	first := schema.NewJob("mail", "send", []byte("x"), schema.WithKey("welcome"))
	d.in(t, true, func(tx Tx) { must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, first)) })
	d.in(t, true, func(tx Tx) {
		got := must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", []byte("x"), schema.WithKey("welcome"))))
		if want := []schema.Receipt{{ID: first.ID, Existing: true}}; !slices.Equal(got, want) {
			t.Errorf("receipts %v, want %v", got, want)
		}
	})
	d.in(t, true, func(tx Tx) {
		_, err := d.outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", []byte("y"), schema.WithKey("welcome")))
		if !errors.Is(err, schema.ErrKeyReused) {
			t.Errorf("other content gives %v, want ErrKeyReused", err)
		}
	})
	d.want(t, 3, 1)
}

func TestScheduled(t *testing.T) {
	onEach(t, testScheduled[pgx.Tx], testScheduled[*sql.Tx])
}

func testScheduled[Tx any](t *testing.T, d *database[Tx]) {
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	kept, gone := schema.NewJob("mail", "send", nil, schema.WithDueAt(due)), schema.NewJob("mail", "send", nil, schema.WithDueAt(due))
	d.in(t, true, func(tx Tx) { must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, kept, gone)) })
	check := func(want map[string]time.Time) {
		t.Helper()
		rows := must[[]schema.ScheduledRow](t)(d.ListScheduled(t.Context(), schema.RowFilter{}))
		got := make(map[string]time.Time)
		for _, r := range rows {
			got[r.ID.String()] = r.DueAt.UTC()
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("scheduled are %v, want %v", got, want)
		}
	}
	check(map[string]time.Time{kept.ID: due, gone.ID: due})
	change := func(tx Tx) {
		if err := d.outbox.Cancel(t.Context(), tx, gone.ID); err != nil {
			t.Error(err)
		}
		if err := d.outbox.Reschedule(t.Context(), tx, kept.ID, due.Add(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	d.in(t, false, change)
	check(map[string]time.Time{kept.ID: due, gone.ID: due})
	d.in(t, true, change)
	check(map[string]time.Time{kept.ID: due.Add(time.Hour)})
	d.in(t, true, func(tx Tx) {
		if err := d.outbox.Cancel(t.Context(), tx, gone.ID); !errors.Is(err, schema.ErrNotFound) {
			t.Errorf("cancelling twice gives %v, want ErrNotFound", err)
		}
		if err := d.outbox.Reschedule(t.Context(), tx, gone.ID, due); !errors.Is(err, schema.ErrNotFound) {
			t.Errorf("rescheduling what is gone gives %v, want ErrNotFound", err)
		}
	})
	d.want(t, 3, 0)
}

func TestC22_PayloadsRoundTrip(t *testing.T) {
	onEach(t, testPayloads[pgx.Tx], testPayloads[*sql.Tx])
}

func testPayloads[Tx any](t *testing.T, d *database[Tx]) {
	payloads := [][]byte{
		nil,
		{},
		[]byte("hello"),
		{0x08, 0x96, 0x01},
		{0},
		{0xff},
		[]byte(`{"a":"\u0000"}`), []byte(`"\ud800"`), []byte(`{"a":1,"a":2}`),
		[]byte("9007199254740993"), bytes.Repeat([]byte{0xde, 0xad}, 50_000),
	}
	for _, p := range payloads {
		d.in(t, true, func(tx Tx) {
			must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", p, schema.WithID(schema.NewID()+"7"))))
		})
	}
	d.want(t, len(payloads), len(payloads))
	for i, e := range d.envelopes(t) {
		if !bytes.Equal(e.Payload, payloads[i]) {
			t.Errorf("payload %d became %.40q, want %.40q", i, e.Payload, payloads[i])
		}
		if len(e.ID) != 37 {
			t.Errorf("id %q has %d characters, want 37", e.ID, len(e.ID))
		}
	}
}

func TestC19_MetadataRoundTrips(t *testing.T) {
	onEach(t, testMetadata[pgx.Tx], testMetadata[*sql.Tx])
}

func testMetadata[Tx any](t *testing.T, d *database[Tx]) {
	good := map[string]string{"a": "l1\nl2", "b": "  x  ", "c": "", "d-e": "a\x00b", "f": "🙂", "g": "%", "h": "\xff"}
	d.in(t, true, func(tx Tx) {
		must[[]schema.Receipt](t)(d.outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", nil, schema.WithMetadata(good))))
	})
	if got := d.envelopes(t)[0].Metadata; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", good) {
		t.Errorf("metadata became %q, want %q", got, good)
	}
	for name, bad := range map[string]map[string]string{
		"metadata[my key]": {"my key": "x"}, "metadata[a:b]": {"a:b": "x"}, "metadata[a/b]": {"a/b": "x"}, "metadata[]": {"": "x"}, "metadata[ключ]": {"ключ": "x"},
		"metadata[Nats-Rollup]": {"Nats-Rollup": "all"}, "headers": {"a": strings.Repeat("x", 100_000)},
	} {
		d.in(t, true, func(tx Tx) {
			_, err := d.outbox.Publish(t.Context(), tx, schema.NewJob("mail", "send", nil, schema.WithMetadata(bad)))
			var invalid *schema.ValidationError
			if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Field != name {
				t.Errorf("%s: got %v, want one fault of that field", name, err)
			}
		})
	}
	d.want(t, 8, 1)
}
