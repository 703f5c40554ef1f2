package httprelay

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// issuer is an API that takes tokens, with its token endpoint: RFC 6749, sections 4.4 and 5.
type issuer struct {
	*httptest.Server
	ca string

	mu     sync.Mutex
	asked  []url.Values // what the endpoint was asked, with the Authorization header as "auth"
	used   []string
	good   map[string]bool // what the API takes
	answer func(n int, w http.ResponseWriter)
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{good: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if err := r.ParseForm(); err != nil || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			t.Errorf("the request for a token is no form: %v", err)
		}
		r.PostForm.Set("auth", r.Header.Get("Authorization"))
		i.asked = append(i.asked, r.PostForm)
		n := len(i.asked)
		if i.answer != nil {
			i.answer(n, w)
			return
		}
		i.good[fmt.Sprint("token-", n)] = true
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":600,"scope":"x"}`, n)
	})
	mux.HandleFunc("POST /api/do", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		i.used = append(i.used, token)
		if !i.good[token] {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	i.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(i.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *issuer) state() (asked []url.Values, used []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append(asked, i.asked...), append(used, i.used...)
}

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const clientSecret = "s3cret of:client"

func (i *issuer) relay(t *testing.T, now func() time.Time, change func(*Auth)) *relay {
	t.Helper()
	base, err := url.Parse(i.URL + "/api")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		BaseURL: base, Settings: outbound.Settings{AllowPrivate: true, TLSCAFile: i.ca}, Actions: map[string]Action{"do": {Method: "POST", Path: "/do"}},
		Auth: Auth{Type: AuthOAuth2, TokenURL: i.URL + "/token?tenant=1", ClientID: "client 1", ClientSecret: configgroup.NewSecret(clientSecret)},
	}
	if change != nil {
		change(&cfg.Auth)
	}
	r, err := newRelay(cfg, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var job = schema.NewJob("ils", "do", []byte(`{}`))

func TestToken_is_asked_for_with_the_clients_credentials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Auth)
		want   url.Values
	}{
		"basic": {nil, url.Values{"grant_type": {"client_credentials"}, "auth": {"Basic Y2xpZW50KzE6czNjcmV0K29mJTNBY2xpZW50"}}}, // client+1:s3cret+of%3Aclient
		"post": {
			func(a *Auth) { a.ClientAuth, a.Scope, a.Audience = ClientSecretPost, "read write", "ils" },
			url.Values{
				"grant_type": {"client_credentials"}, "auth": {""}, "client_id": {"client 1"}, "client_secret": {clientSecret}, "scope": {"read write"}, "audience": {"ils"},
			},
		},
	} {
		i := newIssuer(t)
		if err := i.relay(t, time.Now, c.change).Handle(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if asked, _ := i.state(); len(asked) != 1 || asked[0].Encode() != c.want.Encode() {
			t.Errorf("%s: asked %v, want %v", name, asked, c.want)
		}
	}
}

func TestToken_is_shared_and_renewed_before_its_end(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	now := &clock{now: time.Now()}
	r := i.relay(t, now.Now, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := r.Handle(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	now.add(569 * time.Second)
	for range 2 {
		if err := r.Handle(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	if asked, used := i.state(); len(asked) != 1 || len(used) != 22 {
		t.Errorf("%d tokens for %d requests", len(asked), len(used))
	}
	now.add(2 * time.Second) // 30 seconds before the end
	if err := r.Handle(t.Context(), job); err != nil {
		t.Error(err)
	}
	if asked, used := i.state(); len(asked) != 2 || used[22] != "token-2" {
		t.Errorf("%d tokens, used %v", len(asked), used)
	}
}

func TestToken_life(t *testing.T) {
	t.Parallel()
	for expires, want := range map[string]time.Duration{
		`,"expires_in":3600`: 3570 * time.Second, `,"expires_in":"100"`: 90 * time.Second, `,"expires_in":10`: 9 * time.Second,
		``: 0, `,"expires_in":null`: 0, `,"expires_in":0`: 0, `,"expires_in":-5`: 0, `,"expires_in":1e300`: 0, `,"expires_in":"soon"`: 0, `,"expires_in":{}`: 0,
	} {
		i := newIssuer(t)
		i.answer = func(_ int, w http.ResponseWriter) {
			fmt.Fprintf(w, `{"access_token":"t","token_type":"BEARER"%s}`, expires)
		}
		now := &clock{now: time.Now()}
		token, until, err := i.relay(t, now.Now, nil).tokens.ask(t.Context())
		if err != nil || token != "t" || until.IsZero() != (want == 0) || want > 0 && until.Sub(now.Now()) != want {
			t.Errorf("%s: token %q until %v, error %v", expires, token, until, err)
		}
	}
}

func TestToken_is_renewed_once_on_401(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := i.relay(t, time.Now, nil)
	if err := r.Handle(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	clear(i.good) // as after a restart
	i.mu.Unlock()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := r.Handle(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if asked, _ := i.state(); len(asked) != 2 {
		t.Errorf("%d tokens were asked for, want 2", len(asked))
	}
	i.mu.Lock()
	clear(i.good)
	i.answer = func(n int, w http.ResponseWriter) {
		fmt.Fprintf(w, `{"access_token":"bad-%d","token_type":"bearer"}`, n)
	}
	before := len(i.used)
	i.mu.Unlock()
	err := r.Handle(t.Context(), job)
	if schema.KindOf(err) != schema.Temporary || fmt.Sprint(err) != "do: answered 401 Unauthorized" {
		t.Errorf("error %v (%v)", err, schema.KindOf(err))
	}
	if asked, used := i.state(); len(used)-before != 2 || len(asked) != 3 {
		t.Errorf("%d requests, %d tokens", len(used)-before, len(asked))
	}
}

// Whatever the endpoint answers, no message is given up for it, and nothing secret is shown.
func TestToken_errors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		header string
		want   string
	}{
		{400, `{"error":"invalid_client","error_description":"` + clientSecret + `"}`, "", "do: ask for a token: answered 400 Bad Request: invalid_client"},
		{401, `{"error":"invalid_client"}`, "", "do: ask for a token: answered 401 Unauthorized: invalid_client"},
		{400, `{"error":"` + clientSecret + `"}`, "", "do: ask for a token: answered 400 Bad Request"},
		{403, clientSecret, "", "do: ask for a token: answered 403 Forbidden"},
		{404, "", "", "do: ask for a token: answered 404 Not Found"},
		{302, "", "", "do: ask for a token: answered 302 Found; redirects are not followed"},
		{429, "", "9", "do: ask for a token: answered 429 Too Many Requests"},
		{503, "", "9", "do: ask for a token: answered 503 Service Unavailable"},
		{200, strings.Repeat(" ", DefaultMaxResponse+1), "", "do: ask for a token: answered 200 with more than 1048576 bytes"},
		{200, clientSecret, "", "do: ask for a token: the answer is no token"},
		{200, `{}`, "", "do: ask for a token: the answer has no token that a header can carry"},
		{200, `{"access_token":"a b","token_type":"bearer"}`, "", "do: ask for a token: the answer has no token that a header can carry"},
		{200, `{"access_token":"a\r\nX: y","token_type":"bearer"}`, "", "do: ask for a token: the answer has no token that a header can carry"},
		{200, `{"access_token":"abc","token_type":"mac"}`, "", "do: ask for a token: the token is of another type than bearer"},
	} {
		i := newIssuer(t)
		i.answer = func(_ int, w http.ResponseWriter) {
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}
		err := i.relay(t, time.Now, nil).Handle(t.Context(), job)
		if schema.KindOf(err) != schema.Temporary || fmt.Sprint(err) != c.want {
			t.Errorf("%d %.80s: error %v (%v), want %q", c.status, c.body, err, schema.KindOf(err), c.want)
		}
		if wait, _ := schema.RetryAfterOf(err); (wait == 9*time.Second) != (c.header != "") {
			t.Errorf("%d: wait %v", c.status, wait)
		}
		if _, used := i.state(); len(used) != 0 {
			t.Errorf("%d: a request was sent without a token", c.status)
		}
	}
}

// Who waits for another's token gets its error, too, but not the end of its run.
func TestToken_waiters(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	asked, goOn := make(chan struct{}, 10), make(chan struct{})
	i.answer = func(n int, w http.ResponseWriter) {
		asked <- struct{}{}
		if n == 1 {
			<-goOn
		}
		if n < 3 {
			w.WriteHeader(503)
			return
		}
		i.good["t"] = true
		fmt.Fprint(w, `{"access_token":"t","token_type":"bearer"}`)
	}
	r := i.relay(t, time.Now, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var first error
	others := make([]error, 5)
	var wg, cut sync.WaitGroup
	cut.Go(func() { first = r.Handle(ctx, job) })
	<-asked
	for n := range others {
		wg.Go(func() { others[n] = r.Handle(t.Context(), job) })
	}
	cancel()
	cut.Wait()
	close(goOn)
	wg.Wait()
	if !errors.Is(first, context.Canceled) || schema.KindOf(first) != schema.Shutdown {
		t.Errorf("the run that was stopped: %v", first)
	}
	for n, err := range others {
		if err != nil && (schema.KindOf(err) != schema.Temporary || !strings.Contains(err.Error(), "answered 503")) {
			t.Errorf("%d: %v (%v)", n, err, schema.KindOf(err))
		}
	}
	if n, _ := i.state(); len(n) > 3 {
		t.Errorf("the endpoint was asked %d times", len(n))
	}
}

func TestToken_preview_asks_for_none(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	previews, err := i.relay(t, time.Now, nil).Preview(handlers.WithCall(t.Context(), handlers.CallOf("ils", job)), job)
	if asked, _ := i.state(); err != nil || len(previews) != 1 || previews[0].Header["Authorization"] != "Bearer ***" || len(asked) != 0 {
		t.Errorf("previews %+v, error %v, %d tokens", previews, err, len(asked))
	}
}
