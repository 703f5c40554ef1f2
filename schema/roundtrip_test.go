package schema_test

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

// sameEnvelope compares what travels. An explicit key that equals the default one is no key, nil and empty are the same.
func sameEnvelope(t interface {
	Helper()
	Fatalf(string, ...any)
}, got, want schema.Envelope,
) {
	t.Helper()
	if got.IdempotencyKey() != want.IdempotencyKey() {
		t.Fatalf("idempotency key %q, want %q", got.IdempotencyKey(), want.IdempotencyKey())
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		t.Fatalf("payload %q, want %q", got.Payload, want.Payload)
	}
	if !maps.Equal(got.Metadata, want.Metadata) {
		t.Fatalf("metadata %q, want %q", got.Metadata, want.Metadata)
	}
	if !got.Time.Equal(want.Time) {
		t.Fatalf("time %v, want %v", got.Time, want.Time)
	}
	for _, e := range []*schema.Envelope{&got, &want} {
		e.Key, e.Payload, e.Metadata = "", nil, nil
		e.Time = e.Time.UTC()
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestRow_carries_every_valid_envelope_whole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := genEnvelope.Draw(t, "envelope")
		if err := e.Validate(0); err != nil {
			t.Fatalf("the generator made an invalid envelope: %v", err)
		}
		row := schema.NewRow(e)
		got, err := row.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		if got.KeyHash() != e.KeyHash() || got.BodyHash() != e.BodyHash() || got.Slot() != row.Slot {
			t.Fatal("hashes differ after the way through a row")
		}
		sameEnvelope(t, got, e)
		again := schema.NewRow(got)
		if !bytes.Equal(again.Header, row.Header) || again.Subject != row.Subject || again.ID != row.ID || again.OrderLock != row.OrderLock {
			t.Fatalf("encoded again as\n%q\nwant\n%q", again.Header, row.Header)
		}
	})
}

func TestRow_header_block_is_pinned(t *testing.T) {
	t.Parallel()
	e := schema.NewJob("mailer", "send.now", []byte("x"),
		schema.WithID("id-1"), schema.WithKey("Order 7"), schema.WithOrderingKey("Zürich"), schema.WithTenant("t"), schema.WithActor("a"),
		schema.WithRequestID("r"), schema.WithTime(genTimeFixed), schema.WithContentType("text/plain; charset=utf-8"),
		schema.WithTrace("00-01-02-03", "k=v"), schema.WithMetadata(map[string]string{"b": " x", "a": "é", "c": "l1\nl2", "d": ""}))
	want := "_watermill_message_uuid: id-1\r\n" +
		"mb-version: 1\r\n" +
		"ce-specversion: 1.0\r\n" +
		"ce-id: id-1\r\n" +
		"ce-type: job.mailer.send.now\r\n" +
		"ce-idempotencykey: Order%207\r\n" +
		"ce-time: 2026-11-02T03:04:05.000000006Z\r\n" +
		"ce-datacontenttype: text/plain;%20charset=utf-8\r\n" +
		"ce-partitionkey: Z%C3%BCrich\r\n" +
		"ce-tenant: t\r\n" +
		"ce-actor: a\r\n" +
		"ce-requestid: r\r\n" +
		"traceparent: 00-01-02-03\r\n" +
		"tracestate: k=v\r\n" +
		"a: é\r\n" +
		"b: %20x\r\n" +
		"c: l1%0Al2\r\n" +
		"d: \r\n" +
		"mb-encoded: b c\r\n"
	row := schema.NewRow(e)
	if got := string(row.Block()); got != want || string(schema.EncodeHeader(e)) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if row.Subject != "jobs.mailer.send.now" || row.Stream != schema.Jobs || string(row.Payload) != "x" {
		t.Errorf("row is %+v", row)
	}
}

func TestRow_header_block_comes_back_from_what_is_stored_of_it(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := genEnvelope.Draw(t, "envelope")
		row := schema.NewRow(e)
		if want := schema.EncodeHeader(e); !bytes.Equal(row.Block(), want) {
			t.Fatalf("stored as\n%q\nread as\n%q\nwant\n%q", row.Header, row.Block(), want)
		}
	})
}

func TestHeaderReader_says_when_names_are_the_same(t *testing.T) {
	t.Parallel()
	job := func(opts ...schema.Option) schema.Row {
		return schema.NewRow(schema.NewJob("crm", "create", nil, opts...))
	}
	var h schema.HeaderReader
	for i, c := range []struct {
		row  schema.Row
		want bool
	}{
		{job(), false},
		{job(), true},
		{schema.NewRow(schema.NewJob("crm", "update", nil)), true},
		{job(schema.WithKey("k")), true}, // in place of the one that the id implies
		{job(schema.WithTenant("t")), false},
		{job(), false},
		{schema.Row{Header: []byte("bad")}, false},
		{job(), false},
		{job(), true},
	} {
		if _, same, _ := h.Read(c.row); same != c.want {
			t.Errorf("row %d: same is %v, want %v", i, same, c.want)
		}
	}
}

// One reader of many rows says of each what a reader of its own does, whatever stood in the map before.
func TestHeaderReader_reads_each_row_as_if_it_were_the_first(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SliceOfN(genEnvelope, 1, 3).Draw(t, "envelopes")
		bad := []schema.Row{{}, {Header: []byte("no line")}, {Header: []byte("a: 1\r\na: 2\r\n")}, {Header: []byte("a: 1\r\nb\r\n")}}
		var h schema.HeaderReader
		var names []string
		for range rapid.IntRange(1, 12).Draw(t, "rows") {
			row := schema.NewRow(rapid.SampledFrom(few).Draw(t, "envelope"))
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				row = rapid.SampledFrom(bad).Draw(t, "bad")
			}
			want, wantErr := schema.ParseHeader(row.Block())
			got, same, err := h.Read(row)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%q: %v, want %v", row.Header, err, wantErr)
			}
			if err != nil {
				names = nil
				continue
			}
			_, added := got["added"]
			if now := slices.Sorted(maps.Keys(want)); same != added || same && !slices.Equal(now, names) {
				t.Fatalf("same is %v, with what was added %v, of %q after %q", same, added, now, names)
			} else {
				names = now
			}
			delete(got, "added")
			if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
				t.Fatalf("%q is read as %q, want %q", row.Header, got, want)
			}
			got["added"] = []string{"x"}
		}
	})
}

func TestRow_stored_header_block_is_pinned(t *testing.T) {
	t.Parallel()
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	job := func(opts ...schema.Option) schema.Envelope {
		return schema.NewJob("crm", "create", nil, append(opts, schema.WithTime(genTimeFixed), schema.WithMetadata(map[string]string{"a": "b"}))...)
	}
	replay := job(schema.WithID(id))
	replay.Replay = &schema.Replay{Handler: "crm", Of: id, Number: 1}
	untimed := job(schema.WithID(id))
	untimed.Time = time.Time{}
	const rest = "ce-time: 2026-11-02T03:04:05.000000006Z\r\na: b\r\n"
	for _, c := range []struct {
		name string
		e    schema.Envelope
		want string // empty is all of it
	}{
		{"job", job(schema.WithID(id)), rest},
		{"event", schema.NewEvent("paid", nil, schema.WithID(id), schema.WithTime(genTimeFixed)), rest[:strings.Index(rest, "a: ")]},
		{"with a key", job(schema.WithID(id), schema.WithKey("Order 7")), "ce-idempotencykey: Order%207\r\n" + rest},
		{"an id in capitals", job(schema.WithID(strings.ToUpper(id))), ""},
		{"an id that is no UUID", job(schema.WithID("id-1")), ""},
		{"replay", replay, ""},
		{"nothing that tells it from a whole one", untimed, ""},
	} {
		row := schema.NewRow(c.e)
		if c.want == "" {
			c.want = string(schema.EncodeHeader(c.e))
		}
		if got := string(row.Header); got != c.want {
			t.Errorf("%s: stored as\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// Whoever writes rows by other means gets back what they wrote, so that it can be looked at.
func TestRow_header_block_of_others_is_stored_as_it_is(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "\x00\x01", "x: y\r\n", "_watermill_message_uuid: a\r\nx: y\r\n"} {
		row := schema.Row{Subject: "jobs.crm.create", Header: []byte(header)}
		if got := string(row.Block()); got != header {
			t.Errorf("%q is read as %q", header, got)
		}
	}
}

func TestRow_of_a_job_names_where_its_outcome_goes(t *testing.T) {
	t.Parallel()
	e := schema.NewJob("crm", "create", nil, schema.WithReplyTo("loan", "asked.reply", "loan 7/ü"))
	row := schema.NewRow(e)
	if want := "mb-reply-to: loan.asked.reply\r\nmb-reply-ref: loan%207/%C3%BC\r\n"; !strings.Contains(string(row.Header), want) {
		t.Errorf("header block\n%s\nwant in it\n%s", row.Header, want)
	}
	got, err := row.Envelope()
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, got, e)
	// Whoever waits for a report must not be given the receipt of a message that reports to somebody else.
	other, none := e, e
	other.ReplyTo, none.ReplyTo = &schema.ReplyTo{Target: "loan", Action: "asked.reply", Ref: "loan 8"}, nil
	if e.BodyHash() == other.BodyHash() || e.BodyHash() == none.BodyHash() || e.BodyHash() != got.BodyHash() {
		t.Error("the body hash does not tell where the outcome goes")
	}
}

func TestRow_of_a_replay_names_what_it_replays(t *testing.T) {
	t.Parallel()
	e := schema.NewEvent("order.paid", nil, schema.WithID("new"), schema.WithPublic(), schema.WithTenant("t"))
	e.Source = "/millbridge/elsewhere"
	e.Replay = &schema.Replay{Handler: "ledger", Of: "old", Number: 2}
	row := schema.NewRow(e)
	if row.Subject != "replay.ledger.order.paid" || row.Stream != schema.Jobs {
		t.Errorf("a replay travels on %s in %s", row.Subject, row.Stream)
	}
	got, err := row.Envelope()
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, got, e)
	original := schema.Envelope{ID: "old", Kind: schema.KindEvent, Name: "order.paid", Tenant: "t", Source: "/millbridge/elsewhere"}
	if schema.InboxKeyOf("ledger", got) != schema.InboxKeyOf("ledger", original) {
		t.Error("the replay is another inbox row than the original")
	}
}

func TestRow_order_lock(t *testing.T) {
	t.Parallel()
	if r := schema.NewRow(schema.NewEvent("n", nil)); r.OrderLock != 0 {
		t.Errorf("lock %d without an ordering key", r.OrderLock)
	}
	lock := func(opts ...schema.Option) int64 {
		return schema.NewRow(schema.NewEvent("n", nil, opts...)).OrderLock
	}
	a := lock(schema.WithOrderingKey("k"))
	if a == 0 || a != lock(schema.WithOrderingKey("k")) {
		t.Error("the lock of a key is not stable")
	}
	if a == lock(schema.WithOrderingKey("k"), schema.WithTenant("t")) {
		t.Error("two tenants share a lock")
	}
}
