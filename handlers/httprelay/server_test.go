package httprelay_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// request is what a server got.
type request struct {
	method, uri string
	header      http.Header
	body        string
}

// server is a real HTTPS server that notes what it gets.
type server struct {
	*httptest.Server
	ca string // file with its certificate

	mu       sync.Mutex
	requests []request
}

func newServer(t *testing.T, handle http.HandlerFunc) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read a request: %v", err)
		}
		s.mu.Lock()
		s.requests = append(s.requests, request{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body)})
		s.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	s.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) got() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

// lines returns what was asked for, as "GET /holds".
func (s *server) lines() []string {
	var lines []string
	for _, r := range s.got() {
		lines = append(lines, r.method+" "+r.uri)
	}
	return lines
}

// reach are the settings of those that may call the server.
func (s *server) reach() outbound.Settings {
	return outbound.Settings{AllowPrivate: true, TLSCAFile: s.ca}
}

func (s *server) base(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// answer answers with a status and JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func always(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func newRelay(t *testing.T, cfg httprelay.Config) handlers.Handler {
	t.Helper()
	h, err := httprelay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// with returns a relay with one action for the server.
func (s *server) with(t *testing.T, a httprelay.Action) handlers.Handler {
	t.Helper()
	return newRelay(t, httprelay.Config{
		BaseURL: s.base(t, "/api"), Settings: s.reach(), IdempotencyHeader: httprelay.DefaultIdempotencyHeader, Actions: map[string]httprelay.Action{"do": a},
	})
}

func run(t *testing.T, h handlers.Handler, env schema.Envelope) (report string, err error) {
	t.Helper()
	ctx := handlers.WithCall(t.Context(), handlers.CallOf("ils", env))
	err = h.Handle(ctx, env)
	return string(handlers.ReportOf(ctx)), err
}

func do(payload string) schema.Envelope {
	return schema.NewJob("ils", "do", []byte(payload), schema.WithKey("o-7/hold"))
}

func wantKind(t *testing.T, what string, err error, want schema.ErrorKind) {
	t.Helper()
	if err == nil || schema.KindOf(err) != want {
		t.Errorf("%s: error %v is %v, want %v", what, err, schema.KindOf(err), want)
	}
}
