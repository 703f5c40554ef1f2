package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

const (
	oldSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// request is what a receiver got.
type request struct {
	method, path string
	from         string
	header       http.Header
	body         []byte
}

// receiver is a real HTTP server that answers with the next of its answers, the last one for ever.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

func newReceiver(t *testing.T, answers ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answers[min(r.note(req), len(answers))-1](w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// note keeps req and returns its number.
func (r *receiver) note(req *http.Request) int {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		body = []byte("unreadable: " + err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request{req.Method, req.URL.RequestURI(), req.RemoteAddr, req.Header.Clone(), body})
	return len(r.requests)
}

func (r *receiver) got() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// from returns the other side of the connection of each request.
func (r *receiver) from() (addresses []string) {
	for _, req := range r.got() {
		addresses = append(addresses, req.from)
	}
	return addresses
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

var text = configgroup.NewSecret

func texts(list ...string) (secrets []configgroup.Secret) {
	for _, s := range list {
		secrets = append(secrets, text(s))
	}
	return secrets
}

// newHook allows the loopback servers of these tests.
func newHook(t *testing.T, cfg webhook.Config) handlers.Handler {
	t.Helper()
	if cfg.Network == nil {
		cfg.AllowPrivate = true
	}
	h, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wantKind(t *testing.T, err error, want schema.ErrorKind) {
	t.Helper()
	if err == nil || schema.KindOf(err) != want {
		t.Errorf("error %v is %v, want %v", err, schema.KindOf(err), want)
	}
}

func TestHandle_sends_the_same_message_signed_anew_on_each_attempt(t *testing.T) {
	t.Parallel()
	body := `{"b":1, "a":1.0,"n":9007199254740993}`
	env := schema.NewJob("crm", "contact.update", []byte(body), schema.WithKey("Order 7/é"), schema.WithTenant("t 1"), schema.WithContentType("application/json"),
		schema.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "k=v"), schema.WithMetadata(map[string]string{"Host": "evil", "x-meta": "m"}))
	env.Source = "/millbridge/abc"
	server := newReceiver(t, status(500), status(503), status(204))
	clock := time.Now().Add(-2 * time.Second).Truncate(time.Second)
	hook := newHook(t, webhook.Config{
		URL: text(server.URL + "/hook?token=x"), Secrets: texts(oldSecret, newSecret), Headers: map[string]configgroup.Secret{"authorization": text("Bearer x"), "User-Agent": text("shop")},
		Now: func() time.Time { return clock },
	})
	for i, wantErr := range []bool{true, true, false} {
		if err := hook.Handle(t.Context(), env); (err != nil) != wantErr {
			t.Fatalf("attempt %d: %v", i+1, err)
		}
		clock = clock.Add(time.Second)
	}
	got := server.got()
	if len(got) != 3 {
		t.Fatalf("%d requests, want 3", len(got))
	}
	signatures := make(map[string]bool)
	for i, r := range got {
		if r.method != http.MethodPost || r.path != "/hook?token=x" || string(r.body) != body {
			t.Errorf("attempt %d: %s %s %q", i+1, r.method, r.path, r.body)
		}
		for name, want := range map[string]string{
			"webhook-id":          env.ID,
			"webhook-timestamp":   strconv.FormatInt(clock.Unix()-3+int64(i), 10),
			"Idempotency-Key":     "Order%207/%C3%A9",
			"Content-Type":        "application/json",
			"Content-Length":      "37",
			"Authorization":       "Bearer x",
			"User-Agent":          "shop",
			"Traceparent":         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"Tracestate":          "k=v",
			"ce-specversion":      "1.0",
			"ce-id":               env.ID,
			"ce-source":           "/millbridge/abc",
			"ce-type":             "job.crm.contact.update",
			"ce-tenant":           "t%201",
			"ce-idempotencykey":   "Order%207/%C3%A9",
			"ce-datacontenttype":  "",
			"x-meta":              "",
			"Accept-Encoding":     "identity",
			"mb-version":          "",
			schema.HeaderID:       "",
			schema.HeaderReplayOf: "",
		} {
			if values := r.header.Values(name); strings.Join(values, "|") != want {
				t.Errorf("attempt %d: %s is %q, want %q", i+1, name, values, want)
			}
		}
		for _, secret := range []string{oldSecret, newSecret} {
			if err := webhook.Verify(secret, r.header, r.body, time.Minute); err != nil {
				t.Errorf("attempt %d: %v", i+1, err)
			}
		}
		signatures[r.header.Get("webhook-signature")] = true
	}
	if len(signatures) != 3 {
		t.Errorf("%d different signatures, want 3", len(signatures))
	}
}

func TestHandle_of_a_replay_has_the_first_id(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	env := schema.NewJob("crm", "a", nil)
	env.Replay = &schema.Replay{Handler: "crm", Of: "first", Number: 2}
	if err := newHook(t, webhook.Config{URL: text(server.URL)}).Handle(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	h := server.got()[0].header
	if h.Get("webhook-id") != "first" || h.Get("Idempotency-Key") != "first" || h.Get("ce-id") != "first" {
		t.Errorf("id %q, key %q, CloudEvents id %q", h.Get("webhook-id"), h.Get("Idempotency-Key"), h.Get("ce-id"))
	}
	if _, signed := h["Webhook-Signature"]; signed {
		t.Error("signed without a secret")
	}
}

func TestHandle_payloads(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	hook := newHook(t, webhook.Config{URL: text(server.URL)})
	payloads := [][]byte{nil, {}, {0}, []byte("\xff\x00\r\n"), bytes.Repeat([]byte("x"), schema.DefaultPayload)}
	for i, p := range payloads {
		env := schema.NewJob("t", "a", p)
		if i == 2 { // a foreign publisher's envelope may have anything in these
			env.ContentType, env.TraceParent, env.TraceState = "a\r\nX-Evil: 1", "\x00", "é"
		}
		if err := hook.Handle(t.Context(), env); err != nil {
			t.Fatal(i, err)
		}
		r := server.got()[i]
		if !bytes.Equal(r.body, p) || r.header.Get("Content-Length") != strconv.Itoa(len(p)) {
			t.Errorf("payload %d became %d bytes", i, len(r.body))
		}
		if r.header.Get("Content-Type") != "application/octet-stream" || r.header.Get("X-Evil")+r.header.Get("Traceparent")+r.header.Get("Tracestate") != "" {
			t.Errorf("headers %v", r.header)
		}
	}
}

func TestHandle_answers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answer http.HandlerFunc
		want   string
		wait   time.Duration
	}{
		{status(200), "", 0},
		{status(204), "", 0},
		{status(299), "", 0},
		{status(400), "permanent", 0},
		{status(404), "permanent", 0},
		{status(408), "temporary", 0},
		{status(410), "permanent", 0},
		{status(429), "temporary", 0},
		{status(429, "Retry-After", "3"), "temporary", 3 * time.Second},
		{status(503, "Retry-After", "999999999"), "temporary", time.Hour},
		{status(429, "Retry-After", "soon"), "temporary", 0},
		{status(500), "temporary", 0},
	} {
		err := newHook(t, webhook.Config{URL: text(newReceiver(t, tt.answer).URL)}).Handle(t.Context(), schema.NewJob("t", "a", nil))
		kind := ""
		if err != nil {
			kind = schema.KindOf(err).String()
		}
		if wait, _ := schema.RetryAfterOf(err); kind != tt.want || wait != tt.wait {
			t.Errorf("%v is %q with wait %v, want %q with %v", err, kind, wait, tt.want, tt.wait)
		}
		if err != nil && schema.IsGone(err) != strings.Contains(err.Error(), "410") {
			t.Errorf("%v: gone %v", err, schema.IsGone(err))
		}
	}
}

func TestHandle_retry_after_date_by_the_clock(t *testing.T) {
	t.Parallel()
	date := time.Now().Add(90 * time.Second)
	server := newReceiver(t, status(429, "Retry-After", date.UTC().Format(http.TimeFormat)))
	hook := newHook(t, webhook.Config{URL: text(server.URL), RetryAfterMax: 80 * time.Second, Now: func() time.Time { return date.Truncate(time.Second).Add(-70 * time.Second) }})
	if wait, ok := schema.RetryAfterOf(hook.Handle(t.Context(), schema.NewJob("t", "a", nil))); !ok || wait != 70*time.Second {
		t.Errorf("wait %v, %v", wait, ok)
	}
}

func TestHandle_never_follows_redirects(t *testing.T) {
	t.Parallel()
	inside := newReceiver(t, status(200))
	for code, kind := range map[int]schema.ErrorKind{301: schema.Permanent, 302: schema.Temporary, 303: schema.Temporary, 307: schema.Temporary, 308: schema.Permanent} {
		for _, location := range []string{inside.URL, "http://169.254.169.254/latest/meta-data/", "/other", "", "file:///etc/passwd"} {
			server := newReceiver(t, status(code, "Location", location))
			err := newHook(t, webhook.Config{URL: text(server.URL)}).Handle(t.Context(), schema.NewJob("t", "a", []byte("x")))
			wantKind(t, err, kind)
			if err != nil && (!strings.Contains(err.Error(), strconv.Itoa(code)) || strings.Contains(err.Error(), "169.254")) {
				t.Errorf("%d: error %q", code, err)
			}
			if n := len(server.got()); n != 1 {
				t.Errorf("%d to %q: %d requests", code, location, n)
			}
		}
	}
	if n := len(inside.got()); n != 0 {
		t.Errorf("%d requests at the redirects' end", n)
	}
}

func TestHandle_over_TLS(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var protos []string
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protos = append(protos, r.Proto) }))
		server.EnableHTTP2 = http2
		server.Config.ErrorLog = quiet()
		server.StartTLS()
		t.Cleanup(server.Close)
		env := schema.NewJob("t", "a", []byte("x"))
		trust := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		err := newHook(t, webhook.Config{URL: text(server.URL), Network: &outbound.Network{AllowPrivate: true, TLS: &tls.Config{RootCAs: trust}}}).Handle(t.Context(), env)
		if err != nil {
			t.Error(err)
		}
		wantKind(t, newHook(t, webhook.Config{URL: text(server.URL)}).Handle(t.Context(), env), schema.Temporary)
		want := "HTTP/1.1"
		if http2 {
			want = "HTTP/2.0"
		}
		if fmt.Sprint(protos) != "["+want+"]" {
			t.Errorf("requests over %v, want one over %s", protos, want)
		}
	}
}

func TestHandle_when_the_run_ends(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 2)
	server := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})
	hook := newHook(t, webhook.Config{URL: text(server.URL)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	err := hook.Handle(ctx, schema.NewJob("t", "a", nil))
	wantKind(t, err, schema.Shutdown)

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = hook.Handle(ctx, schema.NewJob("t", "a", nil))
	wantKind(t, err, schema.Temporary)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestWebhooks_share_connections(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	for _, path := range []string{"/a", "/b"} {
		if err := newHook(t, webhook.Config{URL: text(server.URL + path)}).Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if from := server.from(); len(from) != 2 || from[0] != from[1] {
		t.Errorf("requests came from %v, want one connection", from)
	}
}
