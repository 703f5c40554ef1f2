package publishers_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

// bad returns two messages with faults of every field and a good one between them; the same ones each time.
func bad() []schema.Envelope {
	return []schema.Envelope{
		schema.NewJob("Mail", longest("a"), nil, schema.WithID("one"), schema.WithKey(longest("k")), schema.WithTenant(longest("t"))),
		schema.NewJob("mail", "send", nil, schema.WithID("two")),
		schema.NewEvent("order.placed", make([]byte, schema.DefaultPayload+1), schema.WithID("three"), schema.WithOrderingKey("a\x00"),
			schema.WithMetadata(map[string]string{"my key": "x"})),
	}
}

const keyRule = `a key must be printable ASCII without space and without any of "(),/:;<=>?@[\]{}`

// badText is what publishing them says, on every database.
const badText = `invalid message one: target: "Mail" must be a-z, 0-9, '-' and '_', starting with a letter or digit; action: too long (length 300, limit 200); ` +
	`key: too long in characters (length 300, limit 200); tenant: too long (length 300, limit 200)` + "\n" +
	`invalid message three: ordering_key: has a NUL byte; metadata[my key]: ` + keyRule + `; ` +
	`payload: too large (length 983041, limit 983040)`

func TestInvalidMessagesAreRefusedInTheTransaction(t *testing.T) {
	onEach(t, testInvalid[pgx.Tx], testInvalid[*sql.Tx])
}

func testInvalid[Tx any](t *testing.T, d *database[Tx]) {
	d.in(t, true, func(tx Tx) {
		_, err := d.outbox.Publish(t.Context(), tx, bad()...)
		if err == nil || err.Error() != badText {
			t.Errorf("error\n%v\nwant\n%s", err, badText)
		}
		var invalid *schema.ValidationError
		if !errors.As(err, &invalid) || invalid.ID != "one" || schema.KindOf(err) != schema.Permanent {
			t.Fatalf("error %v of kind %v, want a permanent *schema.ValidationError of message one", err, schema.KindOf(err))
		}
		if want := (schema.Fault{Field: "action", Reason: "too long", Length: 300, Limit: 200}); invalid.Faults[1] != want {
			t.Errorf("fault %+v, want %+v", invalid.Faults[1], want)
		}
	})
	d.want(t, 1, 0) // the transaction went on and committed
}

func TestPublisherRefusesTheSame(t *testing.T) {
	onEach(t, testPublisherInvalid[pgx.Tx], testPublisherInvalid[*sql.Tx])
}

func testPublisherInvalid[Tx any](t *testing.T, d *database[Tx]) {
	long := message.NewMessage("one", nil)
	long.SetContext(schema.ContextWithOptions(t.Context(), schema.WithTenant(longest("t"))))
	spaced := message.NewMessage("three", make([]byte, schema.DefaultPayload+1))
	spaced.Metadata["my key"] = "x"
	keyed := message.NewMessage("four", nil)
	keyed.SetContext(schema.ContextWithOptions(t.Context(), schema.WithKey("k")))
	late := message.NewMessage("five", nil)
	late.SetContext(schema.ContextWithOptions(t.Context(), schema.WithDueAt(d.clock)))
	for _, test := range []struct {
		topic string
		msgs  []*message.Message
		want  string
	}{
		{"jobs.Mail.send", []*message.Message{long, message.NewMessage("two", nil), spaced}, `invalid message one: target: "Mail" must be a-z, 0-9, '-' and '_', starting with a letter or digit; tenant: too long (length 300, limit 200)` +
			"\n" + `invalid message two: target: "Mail" must be a-z, 0-9, '-' and '_', starting with a letter or digit` +
			"\n" + `invalid message three: target: "Mail" must be a-z, 0-9, '-' and '_', starting with a letter or digit; metadata[my key]: ` + keyRule + `; payload: too large (length 983041, limit 983040)`},
		{"orders", []*message.Message{message.NewMessage("two", nil)}, `invalid message two: topic: must be jobs.<target>.<action> or events.<public|internal>.<name>`},
		{"events.a b", []*message.Message{message.NewMessage("two", nil)}, `invalid message two: name: "a b" must be dot-separated tokens of a-z, 0-9, '-' and '_'`},
		{"events.a", []*message.Message{keyed}, `invalid message four: key: is not possible through watermill-sql: publish through the outbox`},
		{"events.a", []*message.Message{late}, `invalid message five: due_at: is not possible through watermill-sql: publish through the outbox`},
	} {
		d.in(t, true, func(tx Tx) {
			err := d.outbox.Publisher(t.Context(), tx).Publish(test.topic, test.msgs...)
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: error\n%v\nwant\n%s", test.topic, err, test.want)
			}
			var invalid *schema.ValidationError
			if !errors.As(err, &invalid) || invalid.ID != test.msgs[0].UUID {
				t.Errorf("%s: error %v, want a *schema.ValidationError of message %s", test.topic, err, test.msgs[0].UUID)
			}
		})
	}
	d.want(t, 5, 0)
}

// The limit is the database's, also for a process that has not published before.
func TestPayloadLimitIsReadFromTheDatabase(t *testing.T) {
	onEach(t, testLimit[pgx.Tx], testLimit[*sql.Tx])
}

func testLimit[Tx any](t *testing.T, d *database[Tx]) {
	if err := d.SetMaxPayload(t.Context(), 10); err != nil { // another process
		t.Fatal(err)
	}
	d.in(t, true, func(tx Tx) {
		err := d.outbox.Publisher(t.Context(), tx).Publish("events.a", message.NewMessage("one", make([]byte, 11)))
		const want = "invalid message one: payload: too large (length 11, limit 10)"
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if err := d.outbox.Publisher(t.Context(), tx).Publish("events.a", message.NewMessage("two", make([]byte, 10))); err != nil {
			t.Error(err)
		}
	})
	d.want(t, 1, 1)
}
