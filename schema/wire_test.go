package schema_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

var genTimeFixed = time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC)

func TestParseHeader_refuses_bad_blocks(t *testing.T) {
	t.Parallel()
	for _, block := range []string{"a", "a: 1", "a\r\n", "a:1\r\n", ": 1\r\n", "a: 1\r\na: 2\r\n", "a: 1\r\n\r\n", "a: 1\n"} {
		if h, err := schema.ParseHeader([]byte(block)); err == nil {
			t.Errorf("block %q was read as %q", block, h)
		}
	}
	h, err := schema.ParseHeader(nil)
	if err != nil || len(h) != 0 {
		t.Errorf("empty block: %v, %v", h, err)
	}
}

func TestParseHeader_values_do_not_share_room(t *testing.T) {
	t.Parallel()
	h, err := schema.ParseHeader([]byte("a: 1\r\nb: 2\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	h["a"] = append(h["a"], "3")
	if got := h["b"][0]; got != "2" {
		t.Errorf("appending to a changed b to %q", got)
	}
}

func header(pairs ...string) map[string][]string {
	h := make(map[string][]string)
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
	}
	return h
}

func TestDecode_refuses_what_is_not_ours(t *testing.T) {
	t.Parallel()
	id := "_watermill_message_uuid"
	replay := []string{id, "x", "ce-type", "job.t.a", "mb-replay-of", "y", "mb-replay", "1"}
	without := func(name string) map[string][]string {
		h := header(replay...)
		delete(h, name)
		return h
	}
	tests := map[string]struct {
		subject string
		header  map[string][]string
	}{
		"no subject":             {"", header(id, "x")},
		"short subject":          {"jobs.a", header(id, "x")},
		"other subject":          {"cursor.jobs.x.1.0", header(id, "x")},
		"no headers":             {"jobs.a.b", nil},
		"empty id":               {"jobs.a.b", header(id, "", "ce-id", "")},
		"repeated header":        {"jobs.a.b", header(id, "x", "X", "1", "X", "2")},
		"header without value":   {"jobs.a.b", map[string][]string{id: {"x"}, "X": {}}},
		"two spellings":          {"jobs.a.b", header(id, "x", "ce-type", "a", "CE-Type", "b")},
		"version 2":              {"jobs.a.b", header(id, "x", "mb-version", "2")},
		"empty version":          {"jobs.a.b", header(id, "x", "mb-version", "")},
		"replay headers, no one": {"jobs.t.a", header(replay...)},
		"replay without of":      {"replay.t.a", without("mb-replay-of")},
		"replay without number":  {"replay.t.a", without("mb-replay")},
		"replay without type":    {"replay.t.a", without("ce-type")},
		"replay number 0":        {"replay.t.a", header(append(replay[:6:6], "mb-replay", "0")...)},
		"replay number 2^31":     {"replay.t.a", header(append(replay[:6:6], "mb-replay", "2147483648")...)},
		"replay number 2^32+1":   {"replay.t.a", header(append(replay[:6:6], "mb-replay", "4294967297")...)},
		"reply for an event":     {"events.public.a", header(id, "x", "mb-reply-to", "t.a")},
		"reply to a bad target":  {"jobs.t.a", header(id, "x", "mb-reply-to", "T.a")},
		"reply without action":   {"jobs.t.a", header(id, "x", "mb-reply-to", "t")},
		"reply ref without to":   {"jobs.t.a", header(id, "x", "mb-reply-ref", "r")},
		"replay of a bad id":     {"replay.t.a", header(id, "x", "ce-type", "job.t.a", "mb-replay-of", "a.b", "mb-replay", "1")},
	}
	for name, tt := range tests {
		_, err := schema.Decode(tt.subject, tt.header, nil)
		if !errors.Is(err, schema.ErrUndecodable) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: error is %v of kind %v", name, err, schema.KindOf(err))
		}
		if err != nil && strings.ContainsAny(err.Error(), "\r\n\x00") {
			t.Errorf("%s: error has control characters: %q", name, err)
		}
	}
	for _, number := range []string{"1", "2147483647"} {
		if _, err := schema.Decode("replay.t.a", header(append(replay[:6:6], "mb-replay", number)...), nil); err != nil {
			t.Errorf("the complete replay %s: %v", number, err)
		}
	}
}

func TestDecode_reads_names_in_any_case(t *testing.T) {
	t.Parallel()
	e, err := schema.Decode("events.public.order.paid", header("_Watermill_Message_UUID", "x", "MB-Version", "1.7", "Ce-Tenant", "t%20u",
		"CE-PartitionKey", "p", "Traceparent", "00-1", "Kept", "As It Is", "kept", "too"), []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, e, schema.Envelope{
		ID: "x", Kind: schema.KindEvent, Name: "order.paid", Visibility: schema.Public, Tenant: "t u",
		OrderingKey: "p", TraceParent: "00-1", Payload: []byte("b"), Metadata: map[string]string{"Kept": "As It Is", "kept": "too"},
	})
}

func TestDecode_strips_what_belongs_to_the_broker(t *testing.T) {
	t.Parallel()
	h := header("ce-id", "x", "Nats-Batch-Id", "b", "nats-ttl", "1h", "Nats-Rollup", "all", "Nats-Rollup", "sub", "Status", "503",
		"Description", "no", "mb-dead-cause", "exhausted", "k", "v")
	e, err := schema.Decode("jobs.t.a", h, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, e, schema.Envelope{ID: "x", Kind: schema.KindJob, Target: "t", Name: "a", Metadata: map[string]string{"k": "v"}})
	if len(h) != 8 {
		t.Errorf("the caller's headers were changed: %v", h)
	}
}

// A publisher that may write events must not be able to pass one off as a job, or an internal one as public.
func TestDecode_lets_the_subject_rule(t *testing.T) {
	t.Parallel()
	e, err := schema.Decode("events.internal.a", header("ce-id", "x", "ce-type", "job.payments.refund"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, e, schema.Envelope{ID: "x", Kind: schema.KindEvent, Visibility: schema.Internal, Name: "a"})
}

func TestDecode_of_a_foreign_id(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"urn:order:7", "a.b", "é", strings.Repeat("x", 65)} {
		e, err := schema.Decode("events.public.a", header("ce-id", id, "ce-source", "/shop", "ce-type", "com.example.paid"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.ID != schema.RowID(id).String() || e.IdempotencyKey() != id || e.Source != "/shop" {
			t.Errorf("id %q became id %q, key %q, source %q", id, e.ID, e.IdempotencyKey(), e.Source)
		}
		if err := e.Validate(0); err != nil {
			t.Errorf("id %q cannot be replayed: %v", id, err)
		}
	}
}

func TestDecode_keeps_unreadable_codes_as_they_are(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"%": "%", "%4": "%4", "%zz": "%zz", "%41": "A", "a%+1b": "a%+1b", "%%41": "%A"} {
		e, err := schema.Decode("jobs.t.a", header("ce-id", "x", "ce-tenant", in), nil)
		if err != nil || e.Tenant != want {
			t.Errorf("tenant %q was read as %q, %v; want %q", in, e.Tenant, err, want)
		}
	}
}

func TestCloudEvent(t *testing.T) {
	t.Parallel()
	e := schema.NewEvent("order.paid", nil, schema.WithID("x"), schema.WithPublic(), schema.WithTenant("a b"), schema.WithContentType("text/xml"))
	e.Source = "/shop é"
	want := map[string]string{
		"ce-specversion": "1.0", "ce-id": "x", "ce-source": "/shop%20%C3%A9", "ce-type": "event.public.order.paid",
		"ce-datacontenttype": "text/xml", "ce-idempotencykey": "x", "ce-tenant": "a%20b",
	}
	if got := schema.CloudEvent(e); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A header of ours is ours in any case, and it is an error if there are two of it that differ in their case only.
func TestDecode_reads_our_names_in_any_case(t *testing.T) {
	t.Parallel()
	e, err := schema.Decode("jobs.mail.send", map[string][]string{
		"_Watermill_Message_UUID": {"m1"}, "CE-IdempotencyKey": {"a%20b"}, "ce-tenant": {"acme"}, "Mb-Encoded": {"x"}, "x": {"l1%0Al2"}, "X": {"kept%0A"},
		"Nats-Msg-Id": {"1"}, "nats-msg-id": {"2"}, "mb-dead-reason": {"r"}, "MB-Dead-Reason": {"s"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != "m1" || e.Key != "a b" || e.Tenant != "acme" || !maps.Equal(e.Metadata, map[string]string{"x": "l1\nl2", "X": "kept%0A"}) {
		t.Errorf("got id %q, key %q, tenant %q, metadata %q", e.ID, e.Key, e.Tenant, e.Metadata)
	}
	for _, h := range []map[string][]string{
		{"ce-id": {"1"}, "CE-ID": {"1"}}, {"ce-id": {"1"}, "Ce-Foo": {""}, "cE-Foo": {""}}, {"ce-id": {"1"}, "mb-x": {"1"}, "Mb-x": {"1"}},
	} {
		if _, err := schema.Decode("jobs.mail.send", h, nil); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%q gives %v, want an error that one is there twice", h, err)
		}
	}
}
