package reshare_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

const (
	eastPassword = "east-secret-1"
	westPassword = "west-secret-2"
)

// tenants are two libraries: east requests, west supplies.
func tenants() []resharetest.Tenant {
	return []resharetest.Tenant{
		{Name: "east", Username: "bridge", Password: eastPassword, Supplier: "west"},
		{Name: "west", Username: "westbridge", Password: westPassword},
	}
}

// exchange is a request that came in.
type exchange struct {
	method, url, body string
	header            http.Header
}

// gateway serves a ReShare, keeps what came in, and can be made to answer something else.
type gateway struct {
	*resharetest.Server
	url string

	mu    sync.Mutex
	got   []exchange
	other http.HandlerFunc // answers in the server's place; nil and what is not for it go to the server
	only  string           // the path that other is for; empty means all but the logins
}

func open(t testing.TB, cfg resharetest.Config) *gateway {
	t.Helper()
	if cfg.Tenants == nil {
		cfg.Tenants = tenants()
	}
	g := &gateway{Server: resharetest.New(cfg)}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.mu.Lock()
	g.got = append(g.got, exchange{r.Method, r.URL.String(), string(body), r.Header.Clone()})
	other, only := g.other, g.only
	g.mu.Unlock()
	if other != nil && (only == r.Method+" "+r.URL.Path || only == "" && !strings.HasPrefix(r.URL.Path, "/authn/")) {
		other(w, r)
		return
	}
	g.Server.ServeHTTP(w, r)
}

// instead answers requests like "POST /rs/patronrequests" in another way.
func (g *gateway) instead(only string, other http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.only, g.other = only, other
}

// seen returns the method and path of what has come in since it was last asked.
func (g *gateway) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]string, len(g.got))
	for i, e := range g.got {
		path, _, _ := strings.Cut(e.url, "?")
		list[i] = e.method + " " + path
	}
	g.got = nil
	return list
}

// config is that of a target with both libraries, east by default.
func (g *gateway) config() reshare.Config {
	return config(g.url)
}

func config(base string) reshare.Config {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	return reshare.Config{
		BaseURL: u, Tenant: "east", Username: "bridge", Password: configgroup.NewSecret(eastPassword),
		Tenants:  map[string]reshare.Credentials{"west": {Username: "westbridge", Password: configgroup.NewSecret(westPassword)}},
		Settings: outbound.Settings{AllowPrivate: true},
	}
}

func newTarget(t testing.TB, cfg reshare.Config) handlers.Handler {
	t.Helper()
	h, err := reshare.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run handles a job and returns its report.
func run(t testing.TB, h handlers.Handler, env schema.Envelope) (json.RawMessage, error) {
	t.Helper()
	ctx := handlers.WithCall(t.Context(), handlers.CallOf("ill", env))
	err := h.Handle(ctx, env)
	return handlers.ReportOf(ctx), err
}

// must runs a job that succeeds and reads its report.
func must[T any](t testing.TB, h handlers.Handler, env schema.Envelope) T {
	t.Helper()
	report, err := run(t, h, env)
	if err != nil {
		t.Fatalf("%s: %v", env.Name, err)
	}
	var answer T
	dec := json.NewDecoder(bytes.NewReader(report))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&answer); err != nil {
		t.Fatalf("%s reports %s: %v", env.Name, report, err)
	}
	return answer
}

func job(action string, args any, opts ...schema.Option) schema.Envelope {
	return schema.NewJob("ill", action, args, opts...)
}

// book is what a patron of east wants.
func book() reshare.CreateArgs {
	return reshare.CreateArgs{PatronIdentifier: "ada", Title: "Middlemarch", SystemInstanceIdentifier: "ocm123"}
}

func byKey(key string) reshare.Which { return reshare.Which{Key: key} }

func wantKind(t testing.TB, err error, kind schema.ErrorKind) {
	t.Helper()
	if err == nil || schema.KindOf(err) != kind {
		t.Errorf("error %v is %v, want %v", err, schema.KindOf(err), kind)
	}
}

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v says nothing of %q", err, part)
		}
	}
}
