package schema_test

import (
	"encoding/json"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

func TestNewJob_payloads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		payload     any
		want, ctype string
	}{
		"nil":         {nil, "", ""},
		"bytes":       {[]byte("\x00\xff"), "\x00\xff", ""},
		"raw JSON":    {json.RawMessage(`{"b":1, "a":1.0}`), `{"b":1, "a":1.0}`, "application/json"},
		"struct":      {struct{ A int }{1}, `{"A":1}`, "application/json"},
		"string":      {"x", `"x"`, "application/json"},
		"typed bytes": {json.Number("7"), `7`, "application/json"},
	} {
		e := schema.NewJob("t", "a", tt.payload)
		if string(e.Payload) != tt.want || e.ContentType != tt.ctype || e.Validate(0) != nil {
			t.Errorf("%s: payload %q of type %q, %v", name, e.Payload, e.ContentType, e.Validate(0))
		}
	}
	if e := schema.NewJob("t", "a", []byte(`<x/>`), schema.WithContentType("text/xml")); e.ContentType != "text/xml" {
		t.Errorf("content type %q", e.ContentType)
	}
	err := schema.NewJob("t", "a", func() {}).Validate(0)
	if err == nil || !strings.Contains(err.Error(), "payload: encode func()") {
		t.Errorf("a payload that cannot be encoded: %v", err)
	}
}

func TestEnvelope_names(t *testing.T) {
	t.Parallel()
	j, e, p := schema.NewJob("t", "a.b", nil), schema.NewEvent("n", nil), schema.NewEvent("n", nil, schema.WithPublic())
	for got, want := range map[string]string{
		j.Subject(): "jobs.t.a.b", e.Subject(): "events.internal.n", p.Subject(): "events.public.n",
		j.Type(): "job.t.a.b", e.Type(): "event.internal.n", p.Type(): "event.public.n",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if j.Stream() != schema.Jobs || e.Stream() != schema.Events {
		t.Error("wrong stream")
	}
	if j.ID == e.ID || j.IdempotencyKey() != j.ID {
		t.Error("ids are not what keys default to")
	}
}

func TestWithMetadata_adds(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"a": "1"}
	e := job(schema.WithMetadata(shared), schema.WithMetadata(map[string]string{"b": "2"}), schema.WithMetadata(nil))
	if !reflect.DeepEqual(e.Metadata, map[string]string{"a": "1", "b": "2"}) || len(shared) != 1 {
		t.Errorf("metadata %v, the caller's map %v", e.Metadata, shared)
	}
}

// borders gives triples that are the same text when they are joined, with the borders moved.
func borders() iter.Seq[[3]string] {
	parts := []string{"", "x", "xx", "xxx"}
	return func(yield func([3]string) bool) {
		for _, a := range parts {
			for _, b := range parts {
				for _, c := range parts {
					if !yield([3]string{a, b, c}) {
						return
					}
				}
			}
		}
	}
}

// No two different (tenant, kind, target or name, key) may share a hash, wherever the borders between the fields are.
func TestKeyHash_tells_all_keys_apart(t *testing.T) {
	t.Parallel()
	type key struct{ tenant, kind, scope, key string }
	part := rapid.StringMatching(`[a-c.]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (key, schema.Envelope) {
			k := key{part.Draw(t, "tenant"), "job", part.Draw(t, "scope"), part.Draw(t, "key")}
			e := schema.Envelope{ID: "id", Kind: schema.KindJob, Target: k.scope, Name: part.Draw(t, "action"), Tenant: k.tenant, Key: k.key, Payload: []byte(part.Draw(t, "payload"))}
			if rapid.Bool().Draw(t, "event") {
				e.Kind, e.Target, e.Name = schema.KindEvent, "", k.scope
				k.kind = "event"
			}
			if k.key == "" {
				k.key = "id"
			}
			return k, e
		}
		k1, e1 := draw()
		k2, e2 := draw()
		if (k1 == k2) != (e1.KeyHash() == e2.KeyHash()) {
			t.Fatalf("keys %+v and %+v: equal hashes is %v", k1, k2, e1.KeyHash() == e2.KeyHash())
		}
		type body struct{ name, ctype, payload string }
		b1, b2 := body{e1.Name, e1.ContentType, string(e1.Payload)}, body{e2.Name, e2.ContentType, string(e2.Payload)}
		if (b1 == b2) != (e1.BodyHash() == e2.BodyHash()) {
			t.Fatalf("bodies %+v and %+v: equal hashes is %v", b1, b2, e1.BodyHash() == e2.BodyHash())
		}
	})
	seen := make(map[[32]byte]key)
	for k := range borders() {
		e := schema.Envelope{ID: "id", Kind: schema.KindJob, Tenant: k[0], Target: k[1], Key: k[2] + "x"}
		if other, ok := seen[e.KeyHash()]; ok {
			t.Errorf("%q and %+v have one hash", k, other)
		}
		seen[e.KeyHash()] = key{k[0], "job", k[1], k[2]}
	}
	e := job(schema.WithID("x"), schema.WithKey("k"))
	for name, change := range map[string]func(*schema.Envelope){
		"payload":      func(e *schema.Envelope) { e.Payload = []byte("x") },
		"action":       func(e *schema.Envelope) { e.Name = "b" },
		"content type": func(e *schema.Envelope) { e.ContentType = "b" },
	} {
		other := e
		change(&other)
		if other.KeyHash() != e.KeyHash() || other.BodyHash() == e.BodyHash() {
			t.Errorf("another %s: the key must stay, the body must not", name)
		}
	}
}

func TestInboxKey_hash_tells_all_keys_apart(t *testing.T) {
	t.Parallel()
	part := rapid.StringMatching(`[a-c.]{0,2}`)
	gen := rapid.Custom(func(t *rapid.T) schema.InboxKey {
		return schema.InboxKey{Handler: part.Draw(t, "handler"), Source: part.Draw(t, "source"), Tenant: part.Draw(t, "tenant"), Event: part.Draw(t, "event"), Key: part.Draw(t, "key")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if (a == b) != (a.Hash() == b.Hash()) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
	seen := make(map[[32]byte]schema.InboxKey)
	for k := range borders() {
		key := schema.InboxKey{Handler: "h", Tenant: k[0], Event: k[1], Key: k[2]}
		if other, ok := seen[key.Hash()]; ok {
			t.Errorf("%+v and %+v have one hash", key, other)
		}
		seen[key.Hash()] = key
	}
}

func TestSlot_follows_the_ordering_key(t *testing.T) {
	t.Parallel()
	same := func(a, b schema.Envelope) bool { return a.Slot() == b.Slot() }
	k := schema.WithOrderingKey("k")
	if !same(job(k), job(k)) {
		t.Error("one ordering key, two slots")
	}
	if same(job(k), job(k, schema.WithTenant("t"))) || same(job(k), schema.NewJob("u", "a", nil, k)) || same(job(k), event(k)) {
		t.Error("ordering keys are not scoped by tenant, target and stream")
	}
	var slots [16]int
	for range 16_000 {
		slots[event().Slot()>>12]++
	}
	for i, n := range slots {
		if n < 700 || n > 1300 {
			t.Errorf("part %d of the slots has %d of 16,000", i, n)
		}
	}
}
