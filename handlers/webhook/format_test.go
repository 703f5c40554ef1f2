package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

func order(payload []byte, contentType string) schema.Envelope {
	env := schema.NewEvent("order.placed", payload, schema.WithContentType(contentType), schema.WithKey("order 7/é"), schema.WithOrderingKey("c 1"),
		schema.WithTenant("t 1"), schema.WithTime(time.Date(2026, 11, 30, 15, 4, 5, 600_000_000, time.UTC)))
	env.Source = "/millbridge/abc"
	return env
}

// sent returns what a receiver gets for env.
func sent(t *testing.T, cfg webhook.Config, env schema.Envelope) request {
	t.Helper()
	server := newReceiver(t, status(200))
	cfg.URL = text(server.URL + "/hook?token=SECRET123")
	cfg.Secrets = texts(newSecret)
	if err := newHook(t, cfg).Handle(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	r := server.got()[0]
	if err := webhook.Verify(newSecret, r.header, r.body, time.Minute); err != nil {
		t.Errorf("what was sent is not what was signed: %v", err)
	}
	return r
}

func TestStructured_is_a_CloudEvent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		contentType, payload string
		member, want         string // of the data; "" for none
	}{
		"JSON as it is":     {"application/json", `{"b":1, "a":1.0,"n":9007199254740993}`, "data", `{"b":1, "a":1.0,"n":9007199254740993}`},
		"JSON by suffix":    {"application/ld+json; charset=utf-8", `[1]`, "data", `[1]`},
		"JSON string":       {"text/json", `"x"`, "data", `"x"`},
		"JSON null":         {"application/json", `null`, "data", `null`},
		"no JSON after all": {"application/json", `{"a":`, "data_base64", `"eyJhIjo="`},
		"no UTF-8":          {"application/json", "\"\xff\"", "data_base64", `"Iv8i"`},
		"XML":               {"application/xml", `<much wow="xml"/>`, "data", `"\u003cmuch wow=\"xml\"/\u003e"`},
		"MARCXML":           {"application/marcxml+xml", "<é/>", "data", `"\u003cé/\u003e"`},
		"plain text":        {"text/plain", "a\nb", "data", `"a\nb"`},
		"another charset":   {"text/plain; charset=iso-8859-1", "abc", "data_base64", `"YWJj"`},
		"text that is none": {"text/plain", "\xff", "data_base64", `"/w=="`},
		"bytes":             {"application/octet-stream", "\x00\x01", "data_base64", `"AAE="`},
		"no type":           {"", `{ "xyz": 123 }`, "data_base64", `"eyAieHl6IjogMTIzIH0="`}, // the example of the JSON format
		"a type that is no": {"a\r\nX-Evil: 1", "{}", "data_base64", `"e30="`},
		"nothing":           {"application/json", "", "", ""},
	} {
		env := order([]byte(tt.payload), tt.contentType)
		r := sent(t, webhook.Config{Format: webhook.Structured}, env)
		var event map[string]json.RawMessage
		if err := json.Unmarshal(r.body, &event); err != nil {
			t.Errorf("%s: %s: %v", name, r.body, err)
			continue
		}
		want := map[string]string{
			"specversion": `"1.0"`, "id": `"` + env.ID + `"`, "source": `"/millbridge/abc"`, "type": `"event.internal.order.placed"`, "time": `"2026-11-30T15:04:05.6Z"`,
			"idempotencykey": `"order 7/é"`, "partitionkey": `"c 1"`, "tenant": `"t 1"`,
		}
		if tt.contentType != "" {
			want["datacontenttype"] = string(must(json.Marshal(tt.contentType)))
		}
		if tt.member != "" {
			want[tt.member] = tt.want
		}
		for member, value := range want {
			if string(event[member]) != value {
				t.Errorf("%s: %s is %s, want %s", name, member, event[member], value)
			}
		}
		if len(event) != len(want) {
			t.Errorf("%s: members %v", name, slices.Sorted(maps.Keys(event)))
		}
		if got := r.header.Get("Content-Type"); got != "application/cloudevents+json" {
			t.Errorf("%s: content type %s", name, got)
		}
		if names := ceHeaders(r.header); len(names) > 0 || r.header.Get("Idempotency-Key") != "order%207/%C3%A9" || r.header.Get("X-Evil") != "" {
			t.Errorf("%s: headers %v", name, r.header)
		}
	}
}

func ceHeaders(h http.Header) (names []string) {
	for name := range h {
		if strings.HasPrefix(name, "Ce-") {
			names = append(names, name)
		}
	}
	return names
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRaw_has_no_attributes(t *testing.T) {
	t.Parallel()
	env := order([]byte(`{"a":1}`), "application/json")
	raw, binary := sent(t, webhook.Config{Format: webhook.Raw}, env), sent(t, webhook.Config{}, env)
	if string(raw.body) != `{"a":1}` || !bytes.Equal(raw.body, binary.body) || len(ceHeaders(raw.header)) != 0 || len(ceHeaders(binary.header)) != 8 {
		t.Errorf("raw %q %v, binary %q %v", raw.body, raw.header, binary.body, binary.header)
	}
	for _, name := range []string{"Webhook-Id", "Idempotency-Key", "Content-Type"} {
		if raw.header.Get(name) == "" || raw.header.Get(name) != binary.header.Get(name) {
			t.Errorf("%s is %q and %q", name, raw.header.Get(name), binary.header.Get(name))
		}
	}
}

func TestFormat_has_names(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]webhook.Format{"": webhook.Binary, "binary": webhook.Binary, "structured": webhook.Structured, "raw": webhook.Raw} {
		f := webhook.Format(7)
		if err := f.UnmarshalText([]byte(name)); err != nil || f != want || name != "" && f.String() != name {
			t.Errorf("%q is %v, error %v", name, f, err)
		}
	}
	f := webhook.Raw
	if err := f.UnmarshalText([]byte("RAW")); err == nil || f != webhook.Raw || webhook.Format(9).String() != "unknown(9)" {
		t.Errorf("%v, error %v", f, err)
	}
}

func TestTemplates_are_filled_in(t *testing.T) {
	t.Parallel()
	cfg := webhook.Config{
		Payload: `{"type": "{{.name}}", "timestamp": "{{.time}}", "data": {{.payload}}, "note": "from {{.payload.from}}"}`,
		Headers: map[string]configgroup.Secret{"X-From": text("f-{{.payload.id}}"), "authorization": text("Bearer SECRET123")},
	}
	env := order([]byte(`{"id": 7, "from": "Ada \"L\""}`), "text/plain")
	body := `{"type": "order.placed", "timestamp": "2026-11-30T15:04:05.6Z", "data": {"id": 7, "from": "Ada \"L\""}, "note": "from Ada \"L\""}`
	r := sent(t, cfg, env)
	if string(r.body) != body || r.header.Get("X-From") != "f-7" || r.header.Get("Content-Type") != "application/json" || r.header.Get("Authorization") != "Bearer SECRET123" {
		t.Errorf("sent %s with %v", r.body, r.header)
	}
	cfg.Format = webhook.Structured
	var event struct {
		Type string          `json:"datacontenttype"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(sent(t, cfg, env).body, &event); err != nil || string(event.Data) != body || event.Type != "application/json" {
		t.Errorf("structured %+v, error %v", event, err)
	}
}

// A message that a template cannot be made of fails for good, before anything is sent, and says which field it is.
func TestTemplates_of_a_message_that_does_not_fit(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	for want, cfg := range map[string]webhook.Config{
		"payload: {{.payload.customer.id}}: the message has no such field":  {Payload: `{"id": {{.payload.customer.id}}}`},
		"header X-From: {{.payload.from}}: the message has no such field":   {Headers: map[string]configgroup.Secret{"X-From": text("SECRET123{{.payload.from}}")}},
		"header X-From: filled in, it has a character that a header cannot": {Headers: map[string]configgroup.Secret{"x-from": text("{{.payload.line}}")}},
	} {
		cfg.URL = text(server.URL)
		hook := newHook(t, cfg)
		env := order([]byte(`{"line":"a\r\nX-Evil: 1"}`), "application/json")
		err := hook.Handle(t.Context(), env)
		wantKind(t, err, schema.Permanent)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET123") {
			t.Errorf("error %v, want %q", err, want)
		}
		_, previewErr := hook.(handlers.Previewer).Preview(t.Context(), env)
		if previewErr == nil || previewErr.Error() != err.Error() {
			t.Errorf("the preview says %v", previewErr)
		}
	}
	if n := len(server.got()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// A preview is what is sent, but for secrets.
func TestPreview_is_what_is_sent(t *testing.T) {
	t.Parallel()
	for _, format := range []webhook.Format{webhook.Binary, webhook.Structured, webhook.Raw} {
		server := newReceiver(t, status(200))
		now := time.Now().Truncate(time.Second)
		hook := newHook(t, webhook.Config{
			URL: text(server.URL + "/hook/SECRET123?token=SECRET123"), Secrets: texts(oldSecret, "whsk_"+base64.StdEncoding.EncodeToString(make([]byte, 32))), Format: format,
			Payload: `{"data": {{.payload}}}`, Headers: map[string]configgroup.Secret{"authorization": text("SECRET123"), "X-Order": text("SECRET123 {{.payload.id}}")},
			Now: func() time.Time { return now },
		})
		env := order([]byte(`{"id":7}`), "application/json")
		env.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		list, err := hook.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d previews, error %v", len(list), err)
		}
		if err := hook.Handle(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		p, r := list[0], server.got()[0]
		if p.Do != "POST "+server.URL+"/***" || p.Body != string(r.body) || p.When != "" {
			t.Errorf("preview %+v, sent %s", p, r.body)
		}
		r.header.Del("Content-Length")
		want := map[string]string{}
		for name := range r.header {
			want[strings.ToLower(name)] = r.header.Get(name)
		}
		want["authorization"], want["x-order"], want["webhook-signature"] = "***", "***7", "v1,*** v1a,***"
		if !maps.Equal(p.Header, want) {
			t.Errorf("preview %v\nsent %v", p.Header, want)
		}
	}
}

// A message that was not published yet has no source.
func TestPreview_of_a_message_without_a_source(t *testing.T) {
	t.Parallel()
	hook := newHook(t, webhook.Config{URL: text("https://crm.example.com")})
	list, err := hook.(handlers.Previewer).Preview(t.Context(), schema.NewJob("crm", "a", nil))
	if err != nil || list[0].Header["ce-source"] != "/millbridge/***" || list[0].Do != "POST https://crm.example.com" {
		t.Errorf("preview %+v, error %v", list, err)
	}
}

func FuzzStructured(f *testing.F) {
	f.Add("application/json", []byte(`{"a":1}`), "t", "k")
	f.Add("text/plain", []byte("\xff"), "é", "%41")
	f.Add("", []byte(nil), "\x00", "%")
	f.Fuzz(func(t *testing.T, contentType string, payload []byte, tenant, key string) {
		env := order(payload, contentType)
		env.Tenant, env.Key = tenant, key
		hook, err := webhook.New(webhook.Config{URL: text("https://example.org"), Format: webhook.Structured})
		if err != nil {
			t.Fatal(err)
		}
		list, err := hook.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		var event struct {
			Data   json.RawMessage `json:"data"`
			Base64 *[]byte         `json:"data_base64"`
			Key    string          `json:"idempotencykey"`
		}
		if err := json.Unmarshal([]byte(list[0].Body), &event); err != nil {
			t.Fatalf("%q: %v", list[0].Body, err)
		}
		var asText string
		_ = json.Unmarshal(event.Data, &asText)
		switch {
		case event.Data != nil && event.Base64 != nil:
			t.Fatalf("%q has data twice", list[0].Body)
		case event.Base64 != nil:
			if !bytes.Equal(*event.Base64, payload) {
				t.Fatalf("%q became %q", payload, *event.Base64)
			}
		case event.Data == nil:
			if len(payload) > 0 {
				t.Fatalf("%q is lost", payload)
			}
		case !bytes.Equal(event.Data, bytes.Trim(payload, " \t\r\n")) && asText != string(payload):
			t.Fatalf("%q became %q", payload, event.Data)
		}
		if key != "" && strings.ToValidUTF8(key, "�") == key && event.Key != key {
			t.Fatalf("key %q became %q", key, event.Key)
		}
	})
}
