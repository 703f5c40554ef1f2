package httprelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// action reads an action as a configuration has it.
func action(t *testing.T, text string) httprelay.Action {
	t.Helper()
	a := httprelay.Action{Method: "POST", Path: "/holds"}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a
}

func TestHandle_answers_with_a_meaning(t *testing.T) {
	t.Parallel()
	const (
		done      = "done"
		permanent = "permanent"
		temporary = "temporary"
	)
	inside := `{"success":{"json":{"path":"ok","equals":true}},"reason":"why"`
	for _, c := range []struct {
		action string
		status int
		body   string
		want   string
		text   string
	}{
		{`{}`, 200, "whatever", done, ""},
		{`{}`, 204, "", done, ""},
		{`{}`, 400, "x", permanent, "do: answered 400 Bad Request"},
		{`{}`, 401, "x", temporary, "do: answered 401 Unauthorized"},
		{`{}`, 403, "x", permanent, "do: answered 403 Forbidden"},
		{`{}`, 404, "x", permanent, "do: answered 404 Not Found"},
		{`{}`, 409, "x", permanent, "do: answered 409 Conflict"},
		{`{}`, 408, "x", temporary, "do: answered 408 Request Timeout"},
		{`{}`, 425, "x", temporary, "do: answered 425 Too Early"},
		{`{}`, 429, "x", temporary, "do: answered 429 Too Many Requests"},
		{`{}`, 500, "x", temporary, "do: answered 500 Internal Server Error"},
		{`{}`, 503, "x", temporary, "do: answered 503 Service Unavailable"},
		{`{}`, 301, "x", permanent, "do: answered 301 Moved Permanently; redirects are not followed"},
		{`{}`, 307, "x", temporary, "do: answered 307 Temporary Redirect; redirects are not followed"},
		{`{"success":{"status":[201]}}`, 201, "", done, ""},
		{`{"success":{"status":[201]}}`, 200, "", permanent, "do: answered 200, but not as success says"},
		{`{"success":{"status":[201]}}`, 503, "", temporary, "do: answered 503 Service Unavailable"},
		{inside + "}", 200, `{"ok":true}`, done, ""},
		{inside + "}", 200, `{"ok":false,"why":"no\nitem"}`, permanent, "do: answered 200, but not as success says: no item"},
		{inside + "}", 200, `{}`, permanent, "do: answered 200, but not as success says"},
		{inside + "}", 200, `<html>`, temporary, "do: answered 200: the answer is not JSON"},
		{inside + "}", 200, `{"ok":true} {}`, temporary, "do: answered 200: the answer is not JSON"},
		{inside + "}", 500, `{"ok":true,"why":"down"}`, temporary, "do: answered 500 Internal Server Error: down"},
		{inside + `,"temporary":[{"json":{"path":"code","in":["LOCKED",7]}}]}`, 200, `{"code":"LOCKED","why":"busy"}`, temporary, "do: answered 200, as temporary.0 says: busy"},
		{inside + `,"temporary":[{"json":{"path":"code","in":["LOCKED",7]}}]}`, 200, `{"code":7.0}`, temporary, "do: answered 200, as temporary.0 says"},
		{inside + `,"temporary":[{"status":[404]},{"status":[400],"json":{"path":"code","equals":"LOCKED"}}]}`, 400, `{"code":"LOCKED"}`, temporary, "do: answered 400, as temporary.1 says"},
		{inside + `,"temporary":[{"status":[404]},{"status":[400],"json":{"path":"code","equals":"LOCKED"}}]}`, 400, `LOCKED`, permanent, "do: answered 400 Bad Request"},
		{`{"permanent":[{"status":[503]}]}`, 503, ``, permanent, "do: answered 503, as permanent.0 says"},
		{`{"permanent":[{"status":[401]}]}`, 401, ``, permanent, "do: answered 401, as permanent.0 says"},
		{`{"permanent":[{"json":{"path":"error","exists":true}}]}`, 200, `{"error":"no"}`, permanent, "do: answered 200, as permanent.0 says"},
		{`{"permanent":[{"json":{"path":"error","exists":true}}]}`, 200, `{"error":null}`, done, ""},
		{`{"permanent":[{"json":{"path":"error","exists":true}}]}`, 200, `<html>`, temporary, "do: answered 200: the answer is not JSON"},
		{`{"permanent":[{"json":{"path":"error","exists":true}}]}`, 204, ``, done, ""},
		{`{"temporary":[{"status":[400],"json":{"path":"error","exists":true}}]}`, 200, `<html>`, done, ""},
		{`{"done":[{"status":[404]}]}`, 404, ``, done, ""},
		{`{"done":[{"json":{"path":"error","equals":null}}]}`, 409, `{"error":null}`, done, ""},
		{`{"done":[{"json":{"path":"error","equals":null}}]}`, 409, `{}`, permanent, "do: answered 409 Conflict"},
		{`{"done":[{"json":{"path":"a.1","in":[false,"x"]}}]}`, 409, `{"a":[1,"x"]}`, done, ""},
		{`{"done":[{"json":{"path":"a","equals":"x"}}]}`, 409, `{"a":{"x":"x"}}`, permanent, "do: answered 409 Conflict"},
		{`{"done":[{"json":{"path":"errors.0.code","equals":401}}],"permanent":[{"status":[409]}]}`, 409, `{"errors":[{"code":"401"}]}`, permanent, "do: answered 409, as permanent.0 says"},
		{`{"done":[{"json":{"path":"errors.0.code","equals":"401"}}],"permanent":[{"status":[409]}]}`, 409, `{"errors":[{"code":401}]}`, done, ""},
	} {
		s := newServer(t, always(c.status, c.body))
		_, err := run(t, s.with(t, action(t, c.action)), do(`{}`))
		what := fmt.Sprintf("%s, %d %s", c.action, c.status, c.body)
		switch {
		case c.want == done && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.want == done:
		case err == nil || schema.KindOf(err).String() != c.want || err.Error() != c.text:
			t.Errorf("%s: error %v (%v), want %q (%s)", what, err, schema.KindOf(err), c.text, c.want)
		}
		if n := len(s.got()); n != 1 {
			t.Errorf("%s: %d requests", what, n)
		}
	}
}

func TestHandle_honours_Retry_After(t *testing.T) {
	t.Parallel()
	for _, a := range []string{`{}`, `{"temporary":[{"status":[503]}]}`, `{"lookup":{"path":"/x","found":[{"path":"a","exists":true}]}}`} {
		s := newServer(t, always(503, `{}`, "Retry-After", "77"))
		_, err := run(t, s.with(t, action(t, a)), do(`{}`))
		if wait, ok := schema.RetryAfterOf(err); !ok || wait != 77*time.Second {
			t.Errorf("%s: error %v, wait %v", a, err, wait)
		}
	}
}

func TestHandle_looks_up_first(t *testing.T) {
	t.Parallel()
	look := `{"report":"id","lookup":{"path":"/find","query":{"key":"{{.key}}"},"each":"list","found":[{"path":"key","equals":"{{.key}}"},{"path":"open","equals":true}],"report":"id","absent":{"status":[404]}}}`
	for _, c := range []struct {
		status int
		body   string
		posts  int
		report string
		kind   string
	}{
		{200, `{"list":[]}`, 1, "9", ""},
		{200, `{"list":[{"key":"o-7/hold","open":false,"id":1},{"key":"other","open":true,"id":2}]}`, 1, "9", ""},
		{200, `{"list":[{"key":"other","open":true,"id":2},{"key":"o-7/hold","open":true,"id":3}]}`, 0, "3", ""},
		{404, `no`, 1, "9", ""},
		{410, `no`, 0, "", "permanent"},
		{500, `no`, 0, "", "temporary"},
		{401, `no`, 0, "", "temporary"},
		{200, `<html>`, 0, "", "temporary"},
		{200, `{"list":null}`, 0, "", "permanent"},
		{200, `[]`, 0, "", "permanent"},
		{200, `{"list":[{"key":"o-7/hold","open":true}]}`, 0, "", "permanent"}, // found, but nothing to report
	} {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				always(c.status, c.body)(w, r)
				return
			}
			answer(w, 201, map[string]int{"id": 9})
		})
		report, err := run(t, s.with(t, action(t, look)), do(`{}`))
		lines := s.lines()
		if lines[0] != "GET /api/find?key=o-7%2Fhold" || len(lines) != 1+c.posts || report != c.report || (err == nil) != (c.kind == "") {
			t.Errorf("%d %s: requests %q, report %s, error %v", c.status, c.body, lines, report, err)
		}
		if err != nil && schema.KindOf(err).String() != c.kind {
			t.Errorf("%d %s: error %v is %v, want %s", c.status, c.body, err, schema.KindOf(err), c.kind)
		}
	}
}

func TestHandle_reports(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, body, want string }{
		{"id", `{"id":9007199254740993}`, "9007199254740993"},
		{"a.0.b", `{"a":[{"b":{"c":"<x>"}}]}`, `{"c":"\u003cx\u003e"}`},
		{".", `[1, 2]`, "[1,2]"},
		{".", ``, ""},
		{"id", `{"id":null}`, "null"},
		{"id", `{}`, "permanent"},
		{"id", ``, "temporary"},
		{".", `<html>`, "temporary"},
	} {
		s := newServer(t, always(200, c.body))
		got, err := run(t, s.with(t, httprelay.Action{Method: "POST", Path: "/x", Report: c.path}), do(`{}`))
		if err != nil {
			got = schema.KindOf(err).String()
		}
		if got != c.want {
			t.Errorf("%s of %s: %s, error %v, want %s", c.path, c.body, got, err, c.want)
		}
	}
	big := newServer(t, always(200, `{"a":"`+strings.Repeat("x", handlers.MaxReport)+`"}`))
	_, err := run(t, big.with(t, httprelay.Action{Method: "POST", Path: "/x", Report: "a"}), do(`{}`))
	wantKind(t, "a report that is too long", err, schema.Permanent)
	s := newServer(t, always(409, `{"error":"is there"}`))
	got, err := run(t, s.with(t, httprelay.Action{Method: "POST", Path: "/x", Report: "id", Done: []httprelay.Condition{{Status: []int{409}}}}), do(`{}`))
	if got != "" || err != nil {
		t.Errorf("done before: %q, error %v", got, err)
	}
}

// A field of a message is a field of the request, and changes nothing around it.
func TestHandle_escapes_fields(t *testing.T) {
	t.Parallel()
	a := httprelay.Action{
		Method: "PUT", Path: "/holds/{{.payload.v}}/x", Query: map[string]string{"q": "a {{.payload.v}}", "b&": "+"}, Headers: map[string]string{"X-Name": "n={{.payload.h}}"},
		Body: `{"v":"<{{.payload.v}}>","all":{{.payload}},"n":{{.payload.n}}}`,
	}
	for _, v := range []string{
		"7", "a/b", "//evil.example", "https://evil.example/", "a?b=c&d#e", "%2F", `","x":"`, "a\r\nX-Evil: 1", "\x00", "é \u2028", " ", "a+b", "{{.key}}",
	} {
		payload, err := json.Marshal(map[string]any{"v": v, "h": "plain", "n": 12})
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			path := strings.Split(r.URL.EscapedPath(), "/")
			var body struct {
				V   string
				All map[string]any
				N   int
			}
			err := json.NewDecoder(r.Body).Decode(&body)
			if len(path) != 5 || r.PathValue("") != "" || r.URL.Path != "/api/holds/"+v+"/x" || r.URL.Query().Get("q") != "a "+v || r.URL.Query().Get("b&") != "+" || len(r.URL.Query()) != 2 ||
				err != nil || body.V != "<"+v+">" || body.All["v"] != v || body.N != 12 || r.Header.Get("X-Evil") != "" || r.Header.Get("X-Name") != "n=plain" {
				t.Errorf("%q: got %s, body %+v, %v", v, r.URL, body, err)
			}
		})
		if _, err := run(t, s.with(t, a), do(string(payload))); err != nil {
			t.Errorf("%q: %v", v, err)
		}
		if len(s.got()) != 1 {
			t.Errorf("%q: %d requests", v, len(s.got()))
		}
	}
	for what, payload := range map[string]string{
		"no such field": `{"h":"x","n":1}`, "dots": `{"v":"..","h":"x","n":1}`, "a dot": `{"v":".","h":"x","n":1}`, "dots inside": `{"v":"a/../b","h":"x","n":1}`,
		"dots and a semicolon": `{"v":"..;x","h":"x","n":1}`, "backslashes": `{"v":"\\..\\","h":"x","n":1}`, "empty in the path": `{"v":"","h":"x","n":1}`, "a list in the path": `{"v":[1],"h":"x","n":1}`,
		"a line in a header": `{"v":"x","h":"a\r\nX-Evil: 1","n":1}`, "no JSON": `{`, "a missing value": `{"v":"x","h":"x"}`, "too long": `{"v":"` + strings.Repeat("x", 10_000) + `","h":"x","n":1}`,
	} {
		s := newServer(t, always(200, ""))
		h := s.with(t, a)
		_, err := run(t, h, do(payload))
		wantKind(t, what, err, schema.Permanent)
		if _, previewErr := h.(handlers.Previewer).Preview(t.Context(), do(payload)); fmt.Sprint(previewErr) != fmt.Sprint(err) {
			t.Errorf("%s: the preview says %v, the run %v", what, previewErr, err)
		}
		if len(s.got()) != 0 {
			t.Errorf("%s: a request was sent", what)
		}
	}
}

func TestHandle_sends_forms_and_texts(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(200, ""))
	for contentType, c := range map[string]struct{ body, want string }{
		"application/x-www-form-urlencoded": {"patron={{.payload.v}}&x=1", "patron=a%26b%3D%22c%22%20%E2%82%AC&x=1"},
		"text/plain":                        {"patron {{.payload.v}}", `patron a&b="c" €`},
		"application/xml":                   {"{{.payload}}", `{"v":"a&b=\"c\" €"}`},
	} {
		h := s.with(t, httprelay.Action{Method: "POST", Path: "/x", Body: c.body, ContentType: contentType})
		if _, err := run(t, h, do(`{"v":"a&b=\"c\" €"}`)); err != nil {
			t.Fatal(err)
		}
		got := s.got()[len(s.got())-1]
		if got.body != c.want || got.header.Get("Content-Type") != contentType {
			t.Errorf("%s: sent %q as %s, want %q", contentType, got.body, got.header.Get("Content-Type"), c.want)
		}
	}
}

func TestPreview_is_what_is_sent(t *testing.T) {
	t.Parallel()
	for name, auth := range map[string]struct {
		auth httprelay.Auth
		sent string
	}{
		"none":    {httprelay.Auth{}, ""},
		"basic":   {httprelay.Auth{Type: "basic", User: "u", Password: configgroup.NewSecret(marker)}, "Basic dTpTRUNSRVQxMjM="},
		"bearer":  {httprelay.Auth{Type: "bearer", Token: configgroup.NewSecret(marker)}, "Bearer " + marker},
		"api_key": {httprelay.Auth{Type: "api_key", Header: "Authorization", Scheme: "apikey", Key: configgroup.NewSecret(marker)}, "apikey " + marker},
	} {
		s := newServer(t, always(200, "[]"))
		a := action(t, `{"path":"/holds/{{.payload.id}}","query":{"a":"{{.payload.id}}"},"headers":{"X-Own":"{{.tenant}}","Accept":"x/y"},"body":"{\"id\":\"{{.payload.id}}\"}",
			"lookup":{"path":"/find","query":{"key":"{{.key}}"},"each":".","found":[{"path":"key","equals":"{{.key}}"}]}}`)
		h := newRelay(t, httprelay.Config{
			BaseURL: s.base(t, "/api/"), Settings: s.reach(), Auth: auth.auth, IdempotencyHeader: "X-Idempotency", Actions: map[string]httprelay.Action{"do": a},
			Headers: map[string]configgroup.Secret{"x-shared": configgroup.NewSecret("shared-" + marker), "X-Own": configgroup.NewSecret("not this")},
		})
		env := schema.NewJob("ils", "do", []byte(`{"id":"a/7"}`), schema.WithKey("o-7 é"), schema.WithTenant("t1"),
			schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "k=v"))
		previews, err := h.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil || len(previews) != 2 || len(s.got()) != 0 {
			t.Fatalf("%s: previews %+v, error %v, %d requests", name, previews, err, len(s.got()))
		}
		if _, err := run(t, h, env); err != nil {
			t.Fatal(err)
		}
		for i, r := range s.got() {
			p := previews[i]
			if p.Do != r.method+" "+s.URL+r.uri || p.Body != r.body || (p.When == "") != (i == 0) {
				t.Errorf("%s: preview %+v, sent %+v", name, p, r)
			}
			for _, own := range []string{"Accept-Encoding", "Content-Length"} { // the connection's
				r.header.Del(own)
			}
			for header, value := range p.Header {
				sent := r.header.Get(header)
				switch header {
				case "Authorization":
					if sent != auth.sent || !strings.HasSuffix(value, "***") || strings.Fields(value)[0] != strings.Fields(sent)[0] {
						t.Errorf("%s: sent %q, shown %q", name, sent, value)
					}
				case "X-Shared":
					if sent != "shared-"+marker || value != "***" {
						t.Errorf("%s: sent %q, shown %q", name, sent, value)
					}
				default:
					if sent != value && (header != "X-Own" || i > 0 || value != "***") {
						t.Errorf("%s: %s is sent as %q, shown as %q", name, header, sent, value)
					}
				}
			}
			if len(r.header) != len(p.Header) {
				t.Errorf("%s: sent %v, shown %v", name, r.header, p.Header)
			}
			if strings.Contains(fmt.Sprint(p), marker) {
				t.Errorf("%s: the preview has a secret: %+v", name, p)
			}
		}
		post := s.got()[1].header
		if post.Get("X-Own") != "t1" || post.Get("Accept") != "x/y" || post.Get("X-Idempotency") != "o-7%20%C3%A9" || post.Get("Traceparent") != env.TraceParent || s.got()[0].header.Get("X-Idempotency") != "" {
			t.Errorf("%s: sent %v", name, post)
		}
	}
}

func TestNothing_tells_secrets(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		answer(w, 400, map[string]string{"why": "you sent " + r.Header.Get("Authorization") + " and " + r.Header.Get("X-Shared") + " and SECR\x00ET123"})
	}
	s := newServer(t, echo)
	cfg := httprelay.Config{
		BaseURL: s.base(t, "/"+marker+"/api"), Settings: s.reach(), Headers: map[string]configgroup.Secret{"X-Shared": configgroup.NewSecret(marker)},
		Actions: map[string]httprelay.Action{"do": action(t, `{"reason":"why","query":{"x":"`+marker+`"}}`)},
	}
	var texts []string
	for _, auth := range []httprelay.Auth{
		{Type: "basic", User: "u", Password: configgroup.NewSecret(marker)},
		{Type: "bearer", Token: configgroup.NewSecret(marker)},
		{Type: "api_key", Header: "Authorization", Key: configgroup.NewSecret(marker)},
	} {
		cfg.Auth = auth
		h := newRelay(t, cfg)
		_, err := run(t, h, do(`{}`))
		wantKind(t, auth.Type, err, schema.Permanent)
		if !strings.Contains(fmt.Sprint(err), "you sent ") || !strings.Contains(fmt.Sprint(err), "***") {
			t.Errorf("the reason is missing: %v", err)
		}
		texts = append(texts, fmt.Sprint(err), fmt.Sprintf("%v %+v %#v %s %d", h, h, h, h, h))
	}
	s.Close()
	_, err := run(t, newRelay(t, cfg), do(`{}`)) // no answer at all
	wantKind(t, "closed", err, schema.Temporary)
	texts = append(texts, fmt.Sprint(err))
	for _, text := range texts {
		if strings.Contains(text, marker) || strings.Contains(text, "dTpTRUNSRVQxMjM") {
			t.Errorf("%q has a secret", text)
		}
	}
}

func TestHandle_of_hostile_answers(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	hang := func(r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}
	for what, c := range map[string]struct {
		handle http.HandlerFunc
		kind   schema.ErrorKind
		text   string
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { hang(r) }, schema.Temporary, "no complete answer within 300ms"},
		"no end": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			hang(r)
		}, schema.Temporary, "no complete answer within 300ms"},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, schema.Temporary, "broke off"},
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, schema.Temporary, "post: "},
		"too long": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(" ", 2000))
		}, schema.Permanent, "answered 200 with more than 1000 bytes"},
		"an endless error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for range 100 {
				if _, err := io.WriteString(w, strings.Repeat(" ", 2000)); err != nil {
					return
				}
			}
		}, schema.Temporary, "answered 500"},
		"deep":         {always(200, strings.Repeat("[", 900)), schema.Temporary, "not JSON"},
		"compressed":   {always(200, "\x1f\x8b\x08\x00", "Content-Encoding", "gzip"), schema.Temporary, "not JSON"},
		"another type": {always(200, "<html>ok</html>", "Content-Type", "text/html"), schema.Temporary, "not JSON"},
	} {
		s := newServer(t, c.handle)
		timeout := time.Duration(0)
		if strings.Contains(c.text, "within") {
			timeout = 300 * time.Millisecond
		}
		h := newRelay(t, httprelay.Config{
			BaseURL: s.base(t, ""), Settings: s.reach(), RequestTimeout: timeout, MaxResponse: 1000,
			Actions: map[string]httprelay.Action{"do": action(t, `{"success":{"json":{"path":"ok","exists":true}}}`)},
		})
		_, err := run(t, h, do(`{}`))
		wantKind(t, what, err, c.kind)
		if !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: error %v, want %q", what, err, c.text)
		}
	}
}

func TestHandle_when_ctx_ends(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-arrived
		cancel(schema.WithKind(schema.NotMine, errors.New("taken")))
	})
	err := s.with(t, action(t, `{}`)).Handle(ctx, do(`{}`))
	wg.Wait()
	wantKind(t, "taken over", err, schema.NotMine)
}

func TestHandle_reaches_nothing_that_is_not_allowed(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(200, ""))
	cfg := httprelay.Config{BaseURL: s.base(t, ""), Settings: outbound.Settings{TLSCAFile: s.ca}, Actions: map[string]httprelay.Action{"do": action(t, `{}`)}}
	cfg.BaseURL.Host = "localhost:" + cfg.BaseURL.Port()
	_, err := run(t, newRelay(t, cfg), do(`{}`))
	var refused *outbound.AddressError
	if !errors.As(err, &refused) || schema.KindOf(err) != schema.Permanent || len(s.got()) != 0 {
		t.Errorf("error %v", err)
	}
}

func TestHandle_at_the_same_time(t *testing.T) {
	t.Parallel()
	ils := new(fakeILS)
	s := newServer(t, ils.koha())
	h := newRelay(t, example(t, "koha", s))
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			env := schema.NewJob("koha", "place-hold", fmt.Appendf(nil, `{"patron_id":%d,"biblio_id":1,"pickup_library_id":"CPL"}`, i%12), schema.WithKey(fmt.Sprint(i)))
			if err := h.Handle(t.Context(), env); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if got := len(ils.State().([]string)); got != 12 || ils.issued != 1 {
		t.Errorf("%d holds, %d tokens", got, ils.issued)
	}
}
