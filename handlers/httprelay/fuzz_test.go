package httprelay

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// Whatever an answer has in it, conditions and paths look at it without a fault, and what is reported is JSON.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"errors":[{"code":"LOCKED"}]}`), "errors.0.code", []byte(`"LOCKED"`))
	f.Add([]byte(`[1e999,-0,null]`), "0", []byte(`1e999`))
	f.Add([]byte(`"x"`), ".", []byte(`7`))
	f.Add([]byte(`{"":{"":1}}`), "a..b", []byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte, path string, want []byte) {
		d := parse(body)
		if d == nil {
			return
		}
		c := Check{Path: path, Equals: want}
		if checkPath(path) != nil || !json.Valid(want) || c.fault() != nil {
			return
		}
		value, found := d.at(path)
		if there := true; found && value != nil != (Check{Path: path, Exists: &there}).holds(d) {
			t.Fatalf("%q in %q is %v, and exists says the other", path, body, value)
		}
		if !found {
			if c.holds(d) {
				t.Fatalf("%q is not in %q, and holds", path, body)
			}
			return
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatalf("%q of %q: %v", path, body, err)
		}
		switch value.(type) {
		case nil, string, bool, json.Number:
			if !(Check{Path: path, Equals: text}).holds(d) {
				t.Fatalf("%s is not the same as itself", text)
			}
		}
	})
}

// Whatever a message has in it, the request stays at the place that the configuration names.
func FuzzFill(f *testing.F) {
	for _, s := range []string{"7", "..", "a/../..", "%2e%2e", "//x", "a?b#c", "\\", "é", "a\r\nb", "\x00"} {
		f.Add(s, s)
	}
	base, err := url.Parse("https://ils.example.org/api/")
	if err != nil {
		f.Fatal(err)
	}
	r, err := newRelay(Config{
		BaseURL: base, Headers: map[string]configgroup.Secret{"X-Key": configgroup.NewSecret("k")},
		Actions: map[string]Action{"do": {
			Method: "POST", Path: "/a/{{.payload.v}}/b-{{.key}}", Query: map[string]string{"q": "{{.payload.v}}"}, Headers: map[string]string{"X-V": "v{{.payload.v}}"},
			Body: `{"v":"{{.payload.v}}","w":{{.payload.v}}}`,
		}},
	}, time.Now)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, v, key string) {
		payload, err := json.Marshal(map[string]string{"v": v})
		if err != nil {
			return
		}
		var plain struct{ V string }
		if err := json.Unmarshal(payload, &plain); err != nil {
			t.Fatal(err)
		}
		main, _, err := r.fill(r.actions["do"], schema.NewJob("ils", "do", payload, schema.WithKey(key)))
		if err != nil {
			if schema.KindOf(err) != schema.Permanent {
				t.Fatalf("%v is %v", err, schema.KindOf(err))
			}
			return
		}
		u, err := url.Parse(main.url)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(u.EscapedPath(), "/")
		if u.Host != base.Host || u.Scheme != "https" || len(parts) != 5 || parts[1] != "api" || parts[2] != "a" || u.Fragment != "" || len(u.Query()) != 1 || u.Query().Get("q") != plain.V {
			t.Fatalf("%q becomes %s", v, main.url)
		}
		if got, err := url.PathUnescape(parts[3]); err != nil || got != plain.V || got == "" || got == "." || got == ".." {
			t.Fatalf("%q becomes the part %q", v, parts[3])
		}
		if value := main.header.Get("X-V"); value != "v"+plain.V || strings.ContainsAny(value, "\r\n\x00") {
			t.Fatalf("%q becomes the header %q", v, value)
		}
		var body struct{ V, W string }
		if err := json.Unmarshal(main.body, &body); err != nil || body.V != plain.V || body.W != plain.V {
			t.Fatalf("%q becomes the body %q: %v", v, main.body, err)
		}
	})
}
