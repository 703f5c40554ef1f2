package fields_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/schema"
)

const payload = `{"customer":{"id":"c 7/é","name":"O\"Hara\n"},"total":12.50,"big":9007199254740993,"paid":true,"none":null,
"items":[{"id":"a"},{"id":"b"}],"empty":"","dots":"..","up":"../../admin","line":"a\r\nX-Evil: 1","@type":"Order","bad":"\ud800"}`

func order() schema.Envelope {
	env := schema.NewJob("crm", "contact.update", json.RawMessage(payload), schema.WithID("m-1"), schema.WithKey("order 7"), schema.WithTenant("t1"),
		schema.WithMetadata(map[string]string{"colour": "red"}), schema.WithTime(time.Date(2026, 11, 30, 15, 4, 5, 600_000_000, time.UTC)))
	env.Source = "/millbridge/x"
	return env
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       fields.Kind
		text, want string
	}{
		{fields.Text, "", ""},
		{fields.Text, "no holes }} here", "no holes }} here"},
		{fields.Text, "{{.id}} {{.key}} {{.kind}} {{.target}} {{.name}} {{.type}} {{.tenant}}", "m-1 order 7 job crm contact.update job.crm.contact.update t1"},
		{fields.Text, "{{.actor}}|{{.request_id}}|{{.ordering_key}}|{{.source}}|{{.content_type}}|{{.time}}", "|||/millbridge/x|application/json|2026-11-30T15:04:05.6Z"},
		{fields.Text, "{{ .metadata.colour }}{{.payload.items.1.id}}{{.payload.total}}{{.payload.paid}}{{.payload.empty}}", "redb12.50true"},
		{fields.Text, "{{.payload.customer.name}}", "O\"Hara\n"},
		{fields.Text, "{{.payload.@type}} {{.payload.big}}", "Order 9007199254740993"},
		{fields.Text, "{{.payload}}", payload},
		{fields.Header, "Bearer x-{{.tenant}}", "Bearer x-t1"},
		{fields.URL, "https://crm.example/contacts/{{.payload.customer.id}}", "https://crm.example/contacts/c%207%2F%C3%A9"},
		{fields.URL, "contacts/v{{.payload.total}}/x?q={{.payload.customer.id}}&e={{.payload.empty}}", "contacts/v12.50/x?q=c%207%2F%C3%A9&e="},
		{fields.URL, "{{.tenant}}/x?{{.name}}=1", "t1/x?contact.update=1"},
		{fields.URL, "https://crm.example?q={{.payload.line}}", "https://crm.example?q=a%0D%0AX-Evil%3A%201"},
		{fields.URL, "/x?up={{.payload.up}}&to=//a/..", "/x?up=..%2F..%2Fadmin&to=//a/.."},
		{fields.JSON, `{"a":{{.payload.customer}},"b":{{.payload.none}},"n":{{.payload.big}}}`, `{"a":{"id":"c 7/é","name":"O\"Hara\n"},"b":null,"n":9007199254740993}`},
		{fields.JSON, `{"{{.tenant}}":"Dear {{.payload.customer.name}}!","k":{{.key}},"\\":"\"{{.id}}"}`, `{"t1":"Dear O\"Hara\n!","k":"order 7","\\":"\"m-1"}`},
		{fields.JSON, `[{{.payload.items.0}},"{{.payload.line}}"]`, `[{"id":"a"},"a\r\nX-Evil: 1"]`},
		{fields.JSON, `{"a":{"b":{{.payload.total}}}}`, `{"a":{"b":12.50}}`},
	} {
		tpl, err := fields.Parse(c.text, c.kind)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := tpl.Render(fields.Of(order()))
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, error %v; want %q", c.text, got, err, c.want)
		}
		if c.kind == fields.JSON && !json.Valid([]byte(got)) {
			t.Errorf("%s: %q is not JSON", c.text, got)
		}
	}
}

func TestRender_refuses_what_would_change_the_text(t *testing.T) {
	t.Parallel()
	long := order()
	long.Tenant = strings.Repeat("x", fields.MaxLine)
	huge := order()
	huge.Payload = []byte(`"` + strings.Repeat("x", fields.MaxText/2) + `"`)
	plain := order()
	plain.Payload = []byte("<xml>\xff</xml>")
	for _, c := range []struct {
		kind       fields.Kind
		text, want string
		env        schema.Envelope
	}{
		{fields.Text, "{{.payload.customer.nr}}", "{{.payload.customer.nr}}: the message has no such field", order()},
		{fields.Text, "{{.payload.items.2.id}}", "no such field", order()},
		{fields.Text, "{{.payload.items.01.id}}", "no such field", order()},
		{fields.Text, "{{.payload.total.x}}", "no such field", order()},
		{fields.Text, "{{.metadata.size}}", "{{.metadata.size}}: the message has no such field", order()},
		{fields.Text, "{{.payload.none}}", "is null", order()},
		{fields.Text, "{{.payload.customer}}", "is an object", order()},
		{fields.Text, "{{.payload.items}}", "is a list", order()},
		{fields.Text, "{{.payload.a}}", "the payload is not JSON", plain},
		{fields.Text, "{{.payload}}{{.payload}}{{.payload}}", "longer than 4194304 bytes", huge},
		{fields.Header, "x {{.payload.line}}", "a header cannot have", order()},
		{fields.Header, "{{.payload.customer.id}}", "a header cannot have", order()},
		{fields.Header, "x{{.tenant}}", "longer than 8192 bytes", long},
		{fields.URL, "/{{.payload.empty}}/x", "is empty", order()},
		{fields.URL, "/{{.payload.dots}}/x", `"." or ".."`, order()},
		{fields.URL, "/a.{{.payload.dots}}/.{{.payload.customer.nr}}", "no such field", order()},
		{fields.URL, "/a/{{.payload.up}}", `"." or ".."`, order()},
		{fields.URL, "/{{.tenant}}", "longer than 8192 bytes", long},
		{fields.JSON, `[{{.payload}}]`, "the payload is not JSON", plain},
		{fields.JSON, `"{{.payload}}"`, "is not UTF-8", plain},
		{fields.JSON, `"{{.payload.customer}}"`, "is an object", order()},
	} {
		tpl, err := fields.Parse(c.text, c.kind)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := tpl.Render(fields.Of(c.env))
		if err == nil || !strings.Contains(err.Error(), c.want) || schema.KindOf(err) != schema.Permanent || len(err.Error()) > 200 {
			t.Errorf("%s: got %.50q, error %.300v; want %q", c.text, got, err, c.want)
		}
	}
}

func TestParse_reports_all_faults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       fields.Kind
		text, want string
	}{
		{fields.Text, "{{", "position 1: {{ without }}"},
		{fields.Text, "a {{.id", "position 3: {{ without }}"},
		{fields.Text, "{{}}", "position 1: want a field"},
		{fields.Text, "{{id}}", "want a field"},
		{fields.Text, "{{.}}", "want a field"},
		{fields.Text, "{{.payload..x}}", "want a field"},
		{fields.Text, "{{.payload.a b}}", "want a field"},
		{fields.Text, "{{.id | html}}", "want a field"},
		{fields.Text, `{{printf "%s" .id}}`, "want a field"},
		{fields.Text, "{{{.id}}}", "want a field"},
		{fields.Text, "{{.paylaod.x}} {{.id}} {{.Env}} {{", `there is no field "paylaod"; there are actor, content_type, id`},
		{fields.Text, "{{.paylaod.x}} {{.id}} {{.Env}} {{", `position 24: there is no field "Env"`},
		{fields.Text, "{{.paylaod.x}} {{.id}} {{.Env}} {{", "position 33: {{ without }}"},
		{fields.Text, "{{.id.x}}", `the field "id" is a text`},
		{fields.Text, "{{.metadata}}", "an entry of the metadata"},
		{fields.Text, "{{.metadata.a.b}}", "an entry of the metadata"},
		{fields.Text, strings.Repeat("x", fields.MaxTemplate+1), "longer than 65536 bytes"},
		{fields.Header, "a\r\nb", "a header cannot have"},
		{fields.URL, "https://{{.tenant}}/x", "which host"},
		{fields.URL, "https://a.{{.tenant}}", "which host"},
		{fields.URL, "https://a.example{{.tenant}}", "which host"},
		{fields.URL, "https://a.example:{{.tenant}}/", "neither"},
		{fields.URL, "//{{.tenant}}/x", "which host"},
		{fields.URL, "{{.tenant}}://evil.example/", "which host"},
		{fields.URL, "h{{.tenant}}://evil.example/", "which host"},
		{fields.URL, "http:/{{.tenant}}/x", "neither"},
		{fields.URL, "{{.tenant}}:x", "neither"},
		{fields.URL, "https://u@a.example/{{.id}}", "user information"},
		{fields.URL, "https://a.example/{{.id}}#x", "fragment"},
		{fields.URL, "https://a.example/../{{.id}}", `"." or ".."`},
		{fields.URL, "https://a.example/%2E%2e/{{.id}}", `"." or ".."`},
		{fields.URL, "https://a.example/%zz", "neither"},
		{fields.URL, "https://a.example/of us/{{.tenant}}", "must be escaped"},
		{fields.URL, "/\u00fcber/{{.tenant}}", "must be escaped"},
		{fields.JSON, `{"a":{{.id}}`, "is not JSON"},
		{fields.JSON, `{"a":1{{.id}}}`, "is not JSON"},
		{fields.JSON, `{"a":{{.id}}{{.id}}}`, "is not JSON"},
		{fields.JSON, `"\u00{{.id}}"`, "is not JSON"},
		{fields.JSON, `"\{{.id}}"`, "is not JSON"},
		{fields.JSON, ``, "is not JSON"},
	} {
		_, err := fields.Parse(c.text, c.kind)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: error %v, want %q", c.text, err, c.want)
		}
	}
}

func TestMask_shows_fields_only(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SECRET": "***", "SECRET {{.tenant}}": "***t1", "{{.tenant}}{{.id}}SECRET": "t1m-1***", "": "",
	} {
		tpl, err := fields.Parse(text, fields.Header)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Mask(fields.Of(order())); err != nil || got != want {
			t.Errorf("%s: got %q, error %v; want %q", text, got, err, want)
		}
	}
}

func TestRender_of_a_replay_has_the_first_id(t *testing.T) {
	t.Parallel()
	env := order()
	env.Replay = &schema.Replay{Handler: "crm", Of: "first", Number: 2}
	tpl, err := fields.Parse("{{.id}}", fields.Text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tpl.Render(fields.Of(env)); err != nil || got != "first" {
		t.Errorf("got %q, error %v", got, err)
	}
}

// Whatever the text and the message are, what is around a hole stays what it was.
func FuzzTemplate(f *testing.F) {
	f.Add("https://a.example/{{.payload.a}}/x?b={{.tenant}}", `{"a":"b/c"}`, "t1")
	f.Add(`{"a":"{{.payload.a}}","b":{{.payload}}}`, `{"a":"\"}"}`, "t1")
	f.Add("{{.metadata.x}} {{.payload.0.1}}", `[[1,2]]`, "\r\n")
	f.Fuzz(func(t *testing.T, text, payload, tenant string) {
		env := schema.NewJob("crm", "a", []byte(payload), schema.WithTenant(tenant), schema.WithMetadata(map[string]string{"x": tenant}))
		for _, kind := range []fields.Kind{fields.Text, fields.Header, fields.URL, fields.JSON} {
			tpl, err := fields.Parse(text, kind)
			if err != nil {
				continue
			}
			got, err := tpl.Render(fields.Of(env))
			if err != nil {
				if schema.KindOf(err) != schema.Permanent {
					t.Fatalf("kind %v: %v", kind, err)
				}
				continue
			}
			switch kind {
			case fields.Header:
				if strings.ContainsAny(got, "\r\n\x00") {
					t.Fatalf("header %q", got)
				}
			case fields.JSON:
				if !json.Valid([]byte(got)) {
					t.Fatalf("%q is not JSON", got)
				}
			case fields.URL:
				u, err := url.Parse(got)
				if err != nil {
					t.Fatalf("%q is no URL: %v", got, err)
				}
				static, _ := url.Parse(strings.ReplaceAll(strings.ReplaceAll(text, "{{", "_"), "}}", "_"))
				if static != nil && (u.Host != static.Host || strings.Count(u.EscapedPath(), "/") != strings.Count(static.EscapedPath(), "/")) {
					t.Fatalf("%q became %q", text, got)
				}
			}
		}
	})
}
