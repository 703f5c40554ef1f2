package httprelay_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

const marker = "SECRET123"

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// simple is a configuration without faults.
func simple(t *testing.T) httprelay.Config {
	t.Helper()
	return httprelay.Config{BaseURL: parseURL(t, "https://ils.example.org/api"), Actions: map[string]httprelay.Action{"do": {Method: "POST", Path: "/holds"}}}
}

func TestConfig_base_urls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://ils.example.org":              "",
		"http://ils.example.org:8080/a/b/":     "",
		"https://ils.example.org/a%20b":        "",
		"ftp://ils.example.org":                "not an http or https",
		"/api":                                 "not an http or https",
		"https:///api":                         "not an http or https",
		"https://u:" + marker + "@example.org": "user information",
		"https://ils.example.org/#" + marker:   "a fragment",
		"https://ils.example.org/?" + marker:   "a query",
		"https://ils.example.org/a/../b":       "an empty part",
		"https://ils.example.org/a/%2e%2E/b":   "an empty part",
		"https://ils.example.org//b":           "an empty part",
		"https://bücher.example":               "ASCII",
	} {
		cfg := simple(t)
		cfg.BaseURL = parseURL(t, text)
		err := cfg.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), "base_url: ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), marker) {
			t.Errorf("the error has a secret: %v", err)
		}
	}
	cfg := simple(t)
	cfg.BaseURL = parseURL(t, "https://10.1.2.3/")
	if _, err := httprelay.New(cfg); err == nil || !strings.Contains(err.Error(), "base_url: address 10.1.2.3 is not allowed: private") {
		t.Errorf("an address inside: %v", err)
	}
}

func TestConfig_reports_all_faults(t *testing.T) {
	t.Parallel()
	secret := configgroup.NewSecret(marker)
	cfg := httprelay.Config{
		Auth:              httprelay.Auth{Type: "bearer", User: "u"},
		Headers:           map[string]configgroup.Secret{"Host": secret, "X-A": configgroup.NewSecret(marker + "\r\n"), "x y": secret, "Authorization": secret, "x-key": secret, "X-Twice": secret, "x-twice": secret},
		IdempotencyHeader: "X-Key", RequestTimeout: -1, MaxResponse: -1, Settings: outbound.Settings{TLSCertFile: "x"},
		Actions: map[string]httprelay.Action{"Bad Name": {}, "do": {Method: "get"}},
	}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"base_url: is missing", "auth.token: is missing", `auth.user: does not belong to type "bearer"`, "headers: Host is not free", "headers: X-A: its value", `headers: "x y" is not`,
		"headers: Authorization is not free", "headers: X-Key is not free", "headers: X-Twice is there twice", "request_timeout: is -1ns", "max_response_bytes: is -1",
		"tls.cert_file: ", `actions: "Bad Name" is no name`, `actions.do.method: "get" is none of GET, POST`, "actions.do.path: does not begin with /",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), marker) {
		t.Errorf("the errors have a secret: %v", err)
	}
	if _, err := httprelay.New(cfg); err == nil {
		t.Error("New accepts what Validate refuses")
	}
	if err := (httprelay.Config{BaseURL: parseURL(t, "https://ils.example.org")}).Validate(); err == nil || err.Error() != "actions: there are none" {
		t.Errorf("no actions: %v", err)
	}
}

// Each of these is one fault of an otherwise good action, by the key that it is reported with.
func TestConfig_actions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:             "",
		`{"path":"/a/"}`: "",
		`{"path":"/"}`:   "",
		`{"path":"/a/{{.payload.id}}/b-{{.key}}"}`:                    "",
		`{"method":"HEAD"}`:                                           "method: ",
		`{"method":"TRACE"}`:                                          "method: ",
		`{"method":"GET","body":"{}"}`:                                "body: a GET has none",
		`{"path":"holds"}`:                                            "path: does not begin",
		`{"path":"https://evil.example/"}`:                            "path: does not begin",
		`{"path":"//evil.example/a"}`:                                 "path: has an empty part",
		`{"path":"/a//b"}`:                                            "path: has an empty part",
		`{"path":"/../b"}`:                                            `or one that is "." or ".."`,
		`{"path":"/a/%2e%2e/b"}`:                                      "path: ",
		`{"path":"/a/..;x/b"}`:                                        "path: ",
		`{"path":"/a\\..\\b"}`:                                        "path: has a query, a fragment or a backslash",
		`{"path":"/a?b=c"}`:                                           "path: has a query",
		`{"path":"/a#b"}`:                                             "path: has a query, a fragment",
		`{"path":"/{{.nope}}"}`:                                       `path: position 2: there is no field "nope"`,
		`{"path":"/{{if .key}}"}`:                                     "path: position 2: want a field",
		`{"query":{"":"x"}}`:                                          "query: : has no name",
		`{"query":{"a":"{{.payload"}}`:                                "query: a: position 1: {{ without }}",
		`{"headers":{"Host":"x"}}`:                                    "headers: Host: Host is not free",
		`{"headers":{"Content-Type":"x"}}`:                            "headers: Content-Type: ",
		`{"headers":{"Idempotency-Key":"x"}}`:                         "headers: Idempotency-Key: is not free",
		`{"headers":{"X-A":"a\nb"}}`:                                  "headers: X-A: has a character",
		`{"body":"{"}`:                                                "body: is not JSON",
		`{"body":"{\"a\": {{.payload.a}} {{.key}}}"}`:                 "body: is not JSON",
		`{"body":"<a>{{.key}}</a>","content_type":"application/xml"}`: "body: nobody knows",
		`{"body":"<a/>","content_type":"application/xml"}`:            "",
		`{"body":"{{.payload}}","content_type":"application/xml"}`:    "",
		`{"body":"a={{.key}}","content_type":"application/x-www-form-urlencoded"}`:        "",
		`{"body":"{{.key}}","content_type":"text/plain; charset=utf-8"}`:                  "",
		`{"body":"{}","content_type":"no type"}`:                                          "content_type: is no media type",
		`{"content_type":"application/json"}`:                                             "content_type: there is no body",
		`{"success":{"status":[99]}}`:                                                     "success.status: 99 is no code",
		`{"success":{"json":{"path":"a"}}}`:                                               "success.json: wants exactly one",
		`{"done":[{}]}`:                                                                   "done.0: has neither status nor json",
		`{"permanent":[{"status":[200]},{"json":{"path":"a","equals":1,"exists":true}}]}`: "permanent.1.json: wants exactly one",
		`{"temporary":[{"json":{"path":"a..b","exists":true}}]}`:                          "temporary.0.json: path: want names",
		`{"temporary":[{"json":{"path":"a","equals":{"b":1}}}]}`:                          "temporary.0.json: only texts",
		`{"reason":".a"}`:                                 "reason: want names",
		`{"report":"a."}`:                                 "report: want names",
		`{"lookup":{"path":"a"}}`:                         "lookup.path: does not begin",
		`{"lookup":{"path":"/a"}}`:                        "lookup.found: is missing",
		`{"lookup":{"path":"/a","found":[{"path":"b"}]}}`: "lookup.found.0: wants exactly one",
		`{"lookup":{"path":"/a","found":[{"path":"b","equals":"{{.nope}}"}]}}`:                      "lookup.found.0: equals: position 1",
		`{"lookup":{"path":"/a","each":"x.","found":[{"path":"b","equals":"c"}]}}`:                  "lookup.each: want names",
		`{"lookup":{"path":"/a","absent":{"status":[4]},"found":[{"path":"b","equals":"c"}]}}`:      "lookup.absent.status: 4",
		`{"lookup":{"path":"/a","absent":{"status":[404]},"found":[{"path":"b","in":["c",null]}]}}`: "",
	} {
		a := httprelay.Action{Method: "POST", Path: "/holds"}
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		cfg := simple(t)
		cfg.IdempotencyHeader = httprelay.DefaultIdempotencyHeader
		cfg.Actions = map[string]httprelay.Action{"do": a}
		err := cfg.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), "actions.do.") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestConfig_auth(t *testing.T) {
	t.Parallel()
	secret := configgroup.NewSecret(marker)
	for want, a := range map[string]httprelay.Auth{
		`auth.type: "ntlm"`:          {Type: "ntlm"},
		"auth.password: is missing":  {Type: "basic", User: "u"},
		"auth.user: has a colon":     {Type: "basic", User: "u:v", Password: secret},
		"auth.token: has a char":     {Type: "bearer", Token: configgroup.NewSecret(marker + "\n")},
		"auth.header: is missing":    {Type: "api_key", Key: secret},
		"auth.header: Host is not":   {Type: "api_key", Key: secret, Header: "Host"},
		"auth.header: X-Key: its":    {Type: "api_key", Key: configgroup.NewSecret(marker + "\r\nX: y"), Header: "X-Key"},
		"auth.token_url: is not an":  {Type: "oauth2", TokenURL: "/token" + marker, ClientID: "c", ClientSecret: secret},
		"auth.token_url: has user":   {Type: "oauth2", TokenURL: "https://u:" + marker + "@x.example/", ClientID: "c", ClientSecret: secret},
		`auth.client_auth: "header"`: {Type: "oauth2", TokenURL: "https://x.example/token", ClientID: "c", ClientSecret: secret, ClientAuth: "header"},
		"auth.client_secret: is mis": {Type: "oauth2", TokenURL: "https://x.example/token", ClientID: "c"},
		"auth.scope: does not":       {Type: "none", Scope: "x"},
	} {
		cfg := simple(t)
		cfg.Auth = a
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), marker) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestConfig_sends_no_secrets_in_the_clear(t *testing.T) {
	t.Parallel()
	bearer := httprelay.Auth{Type: "bearer", Token: configgroup.NewSecret(marker)}
	oauth := httprelay.Auth{Type: "oauth2", TokenURL: "HTTP://ils.example.org/token", ClientID: "c", ClientSecret: configgroup.NewSecret(marker)}
	for _, c := range []struct {
		url      string
		auth     httprelay.Auth
		settings outbound.Settings
		want     string
	}{
		{"http://ils.example.org", bearer, outbound.Settings{}, "base_url: with auth it must be https"},
		{"https://ils.example.org", oauth, outbound.Settings{}, "auth.token_url: must be https"},
		{"https://ils.example.org", bearer, outbound.Settings{}, ""},
		{"http://ils.example.org", httprelay.Auth{}, outbound.Settings{}, ""},
		{"http://ils.local", bearer, outbound.Settings{AllowPrivate: true}, ""},
		{"http://ils.local", oauth, outbound.Settings{AllowedNetworks: []string{"10.1.0.0/16"}}, ""},
	} {
		cfg := simple(t)
		cfg.BaseURL, cfg.Auth, cfg.Settings = parseURL(t, c.url), c.auth, c.settings
		err := cfg.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s, %s: error %v, want %q", c.url, c.auth.Type, err, c.want)
		}
	}
}

func TestConfig_is_read_strictly(t *testing.T) {
	t.Parallel()
	env := func(name, value string) []string {
		return []string{
			"MILLBRIDGE_ILS_BASE_URL=https://ils.example.org", `MILLBRIDGE_ILS_ACTIONS={"do":{"method":"GET","path":"/"}}`, "MILLBRIDGE_ILS_" + name + "=" + value,
		}
	}
	got, err := configgroup.Load[httprelay.Config]("ils", configgroup.Environ(env("AUTH", `{"type":"bearer","token":"`+marker+`"}`)))
	if err != nil || got.Auth.Token.Reveal() != marker || got.IdempotencyHeader != "Idempotency-Key" || got.RequestTimeout != 20*time.Second || got.MaxResponse != httprelay.DefaultMaxResponse {
		t.Errorf("got %+v, error %v", got, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		if text := fmt.Sprintf(verb, got); strings.Contains(text, marker) {
			t.Errorf("%s prints a secret: %s", verb, text)
		}
	}
	for want, bad := range map[string][]string{
		`do.metod: is not known; did you mean method?`:              env("ACTIONS", `{"do":{"metod":"`+marker+`"}}`),
		`do.success.json.equal: is not known; did you mean equals?`: env("ACTIONS", `{"do":{"success":{"json":{"equal":1}}}}`),
		`tokne: is not known; did you mean token?`:                  env("AUTH", `{"tokne":"`+marker+`"}`),
	} {
		if _, err := configgroup.Load[httprelay.Config]("ils", configgroup.Environ(bad)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), marker) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err = run(t, newRelay(t, got), schema.NewJob("ils", "undo", nil))
	wantKind(t, "an unknown action", err, schema.Permanent)
	if err == nil || err.Error() != `target "ils" has no action "undo"; it has do` {
		t.Errorf("an unknown action: %v", err)
	}
}
