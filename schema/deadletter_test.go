package schema_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

func sameLetter(t interface {
	Helper()
	Errorf(string, ...any)
}, name string, got, want schema.DeadLetter,
) {
	t.Helper()
	if !maps.EqualFunc(got.Header, want.Header, slices.Equal[[]string]) {
		t.Errorf("%s: headers %.300q, want %.300q", name, got.Header, want.Header)
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		t.Errorf("%s: payload %q, want %q", name, got.Payload, want.Payload)
	}
	got.Header, want.Header, got.Payload, want.Payload = nil, nil, nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
	}
}

func letter(h map[string][]string) schema.DeadLetter {
	return schema.DeadLetter{
		Handler: "h", ID: "id", Message: "message", Key: [32]byte{1, 31: 2}, Replay: 2, Cause: schema.CauseExhausted, Reason: "error: no", Attempts: 12, Deliveries: 14, Time: genTimeFixed,
		Stream: schema.Events, Subject: "mb.events.public.x", Sequence: 77, Header: h, Payload: []byte("p"),
	}
}

func TestDeadLetter_round_trip(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(genMetadataKey, genBytes, rapid.SampledFrom([]string{
		"Nats-TTL", "nats-rollup", "Nats-Batch-Id", "Status", "description", "mb-dead-cause", "MB-Dead-Raw-x", "mb-dead-block", "mb-version", "ce-id",
		"_watermill_message_uuid", "reason_poisoned", "topic_poisoned", "traceparent", "a: b", "a:\r\nb",
	}))
	values := rapid.SliceOfN(genBytes, 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		want := letter(rapid.MapOfN(names, values, 0, 6).Draw(t, "header"))
		want.Payload = []byte(genBytes.Draw(t, "payload"))
		want.Stack = genBytes.Draw(t, "stack")
		want.Subject = genBytes.Draw(t, "subject")
		want.Reason = schema.OneLine(genBytes.Draw(t, "reason"))
		want.Tombstone = rapid.SampledFrom([]string{"", "replayed", "dropped"}).Draw(t, "tombstone")
		before := maps.Clone(want.Header)
		h, body := want.Encode()
		for k, vs := range h {
			if low := strings.ToLower(k); strings.HasPrefix(low, "nats-") || low == "status" || low == "description" {
				t.Fatalf("the broker would obey %q: %q", k, vs)
			}
		}
		got, err := schema.DecodeDeadLetter("dead.events.h.id.2", h, body)
		if err != nil {
			t.Fatal(err)
		}
		sameLetter(t, "", got, want)
		if !maps.EqualFunc(before, want.Header, slices.Equal[[]string]) {
			t.Fatal("the caller's headers were changed")
		}
	})
}

func TestDeadLetter_keeps_the_poison_keys_of_watermill(t *testing.T) {
	t.Parallel()
	h, _ := letter(header("k", "v")).Encode()
	for k, want := range map[string]string{
		"reason_poisoned": "error: no", "topic_poisoned": "mb.events.public.x", "handler_poisoned": "h", "subscriber_poisoned": "millbridge", "k": "v",
	} {
		if got := h[k]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
}

func TestDeadLetter_headers_fit_the_server(t *testing.T) {
	t.Parallel()
	many := map[string][]string{}
	for i := range 800 {
		many[fmt.Sprint("nats-", i)] = []string{""} // names that get longer
	}
	for name, h := range map[string]map[string][]string{
		"none":        nil,
		"ours":        header("k", strings.Repeat("x", schema.MaxHeaderBytes)),
		"large":       header("k", strings.Repeat("x", 65_000)),
		"percent":     header("k", strings.Repeat("%", 65_000)),
		"many":        {"k": slices.Repeat([]string{"v"}, 12_000)},
		"nothing":     {"k": slices.Repeat([]string{""}, 16_000)},
		"two lengths": {"k": slices.Repeat([]string{strings.Repeat("v", 128)}, 400)},
		"broker's":    many,
		"not ours":    header("k ", strings.Repeat("\n", 65_000)),
		"odd names":   header(strings.Repeat(":%", 30_000), ""),
	} {
		d := letter(h)
		d.Reason, d.Stack = strings.Repeat("😀", schema.MaxReason), strings.Repeat("\n", 100_000)
		d.Subject = "mb.jobs.h." + strings.Repeat("\xff", 5_000) // longer than servers take one, unless they are told to
		got, body := d.Encode()
		size, arrived := 0, len(d.Payload)
		for k, vs := range got {
			for _, v := range vs {
				size += len(k) + len(v) + len(": \r\n")
			}
		}
		for k, vs := range h {
			for _, v := range vs {
				arrived += len(k) + len(v) + len(":\r\n")
			}
		}
		if size > 60<<10 {
			t.Errorf("%s: %d bytes of headers", name, size)
		}
		if grown := size + len(body) - arrived; grown > schema.LetterRoom-1024 {
			t.Errorf("%s: it is %d bytes larger than its message", name, grown)
		}
		back, err := schema.DecodeDeadLetter("dead.events.h.id.2", got, body)
		if err != nil {
			t.Fatal(name, err)
		}
		d.Stack = back.Stack
		if d.Header == nil {
			d.Header = map[string][]string{}
		}
		sameLetter(t, name, back, d)
		if !strings.HasPrefix(strings.Repeat("\n", 100_000), back.Stack) || len(back.Stack) < 500 {
			t.Errorf("%s: stack %.20q", name, back.Stack)
		}
	}
}

func TestDecodeDeadLetter_refuses_what_is_none(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"", "dead", "dead.jobs.h.id", "dead.jobs.h.id.x", "dead.jobs.h.id.-1", "dead.jobs.h.id.+1", "dead.jobs.h.id.01", "dead.jobs.h.id.2147483648", "jobs.jobs.h.id.1", "dead.jobs.h.id.1.1"} {
		if d, err := schema.DecodeDeadLetter(subject, nil, nil); err == nil {
			t.Errorf("%q was read as %+v", subject, d)
		}
	}
	for _, size := range []string{"x", "-1", "5", "99999999999999999999"} {
		if d, err := schema.DecodeDeadLetter("dead.jobs.h.id.1", header("mb-dead-block", size), []byte("a: 1")); err == nil {
			t.Errorf("block size %q was read as %+v", size, d)
		}
	}
	for _, body := range []string{"\x02ab\x04ab", "\x02ab\x02a", "\x05abcde", "\x00\x00\x00\x00\x00\x80", "\xff\xff\xff\xff\xff\xff", "\x02ab\x01ab"} {
		if d, err := schema.DecodeDeadLetter("dead.jobs.h.id.1", header("mb-dead-block", fmt.Sprint(len(body))), []byte(body+"rest")); err == nil {
			t.Errorf("block %q was read as %+v", body, d)
		}
	}
	body := binary.AppendUvarint([]byte("\x01a"), math.MaxUint64) // longer than any body
	if d, err := schema.DecodeDeadLetter("dead.jobs.h.id.1", header("mb-dead-block", fmt.Sprint(len(body))), body); err == nil {
		t.Errorf("block %q was read as %+v", body, d)
	}
}

func TestDeadLetter_envelope(t *testing.T) {
	t.Parallel()
	e := schema.NewJob("t", "a", map[string]int{"n": 1}, schema.WithKey("k"))
	h, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		t.Fatal(err)
	}
	h["Nats-TTL"] = []string{"1s"}
	d := letter(h)
	d.Subject, d.Payload = "shop.jobs.t.a", e.Payload
	block, body := d.Encode()
	if d, err = schema.DecodeDeadLetter("dead.jobs.t."+e.ID+".0", block, body); err != nil {
		t.Fatal(err)
	}
	got, err := d.Envelope(schema.Subjects{Prefix: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, got, e)
	if _, err := d.Envelope(schema.Subjects{}); !errors.Is(err, schema.ErrUndecodable) || schema.KindOf(err) != schema.Permanent {
		t.Errorf("another prefix: %v", err)
	}
}
