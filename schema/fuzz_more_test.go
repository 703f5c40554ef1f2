package schema_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// Whatever a caller gives is either refused or travels whole.
func FuzzEnvelope(f *testing.F) {
	f.Add("id", "crm", "contact.update", "key", "order", "tenant", "text/plain", "k", "v\r\nNats-Rollup: all", []byte("{}"))
	f.Add("", "", "paid", "é", "%41", " ", `a/b; q="%20"`, "mb-x", "\xff", []byte(nil))
	f.Fuzz(func(t *testing.T, id, target, name, key, order, tenant, content, metaKey, metaValue string, payload []byte) {
		e := schema.Envelope{
			ID: id, Kind: schema.KindEvent, Visibility: schema.Public, Name: name, Key: key, OrderingKey: order, Tenant: tenant,
			ContentType: content, Payload: payload,
		}
		if metaKey != "" {
			e.Metadata = map[string]string{metaKey: metaValue, "Plain": "x"}
		}
		if target != "" {
			e.Kind, e.Visibility, e.Target = schema.KindJob, "", target
		}
		if err := e.Validate(0); err != nil {
			var fault *schema.ValidationError
			if !errors.As(err, &fault) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		row := schema.NewRow(e)
		if len(row.Block()) > schema.MaxHeaderBytes || len(row.Subject) > schema.MaxSubject {
			t.Fatalf("a header of %d and a subject of %d bytes are accepted", len(row.Block()), len(row.Subject))
		}
		got, err := row.Envelope()
		if err != nil {
			t.Fatalf("%v after %+v", err, e)
		}
		sameEnvelope(t, got, e)
		if got.Slot() != row.Slot || got.BodyHash() != e.BodyHash() || got.KeyHash() != e.KeyHash() {
			t.Fatalf("hashes of %+v and %+v differ", got, e)
		}
	})
}

func FuzzWatermillHeader(f *testing.F) {
	f.Add(schema.EncodeHeader(schema.NewJob("t", "a", 1, schema.WithMetadata(map[string]string{"k": "\xff", "l": "%41"}))))
	f.Add([]byte("_Watermill_message_uuid: a\r\n_watermill_Message_uuid: b\r\nMB-encoded: k\r\nmb-Encoded: l\r\nk: %41\r\nl: %41\r\n"))
	f.Fuzz(func(t *testing.T, block []byte) {
		header := parseLoose(string(block))
		before := len(header)
		id, metadata := schema.WatermillHeader(header)
		if len(metadata) > before {
			t.Fatalf("%d headers gave %d entries", before, len(metadata))
		}
		for range 5 {
			if id2, again := schema.WatermillHeader(header); id2 != id || !maps.Equal(again, metadata) {
				t.Fatalf("read once as %q %q and once as %q %q", id, metadata, id2, again)
			}
		}
	})
}

func FuzzFromTopic(f *testing.F) {
	for _, topic := range []string{"jobs.crm.contact.update", "events.public.paid", "events.paid", "events.internal.", "replay.x.y", "jobs..", ""} {
		f.Add(topic, "id", []byte("p"))
	}
	f.Fuzz(func(t *testing.T, topic, id string, payload []byte) {
		e, err := schema.FromTopic(topic, id, nil, payload)
		if err == nil {
			err = e.Validate(0)
		}
		if err != nil {
			var fault *schema.ValidationError
			if !errors.As(err, &fault) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		want := topic
		if e.Kind == schema.KindEvent && !strings.HasPrefix(topic, "events."+string(e.Visibility)+".") {
			want = "events.internal." + strings.TrimPrefix(topic, "events.")
		}
		if e.Subject() != want || e.ID != id || !bytes.Equal(e.Payload, payload) || e.Replay != nil {
			t.Fatalf("topic %q became %+v on %s", topic, e, e.Subject())
		}
	})
}

func FuzzRowID(f *testing.F) {
	for _, id := range []string{"", "x", "0190f0e0-0000-7000-8000-000000000000", "0190F0E0-0000-7000-8000-000000000000"} {
		f.Add(id, id+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		u, err := schema.ParseUUID(a)
		if err == nil && !strings.EqualFold(u.String(), a) {
			t.Fatalf("%q is read as %s", a, u)
		}
		if a != b && schema.RowID(a) == schema.RowID(b) {
			t.Fatalf("%q and %q have one row id", a, b)
		}
		if row := schema.RowID(a); schema.RowID(row.String()) != row {
			t.Fatalf("the row id of %q has another row id", a)
		}
	})
}
