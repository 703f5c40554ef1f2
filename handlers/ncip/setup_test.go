package ncip_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// now is the clock of the libraries in these tests.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const firstDue = "2026-12-28T12:00:00Z" // four weeks later

// library returns a responder with users and items.
func library(o nciptest.Options) *nciptest.Server {
	o.Now = func() time.Time { return now }
	s := nciptest.New(o)
	s.AddUser(nciptest.User{ID: "2001", Name: "Ada Reader"})
	s.AddUser(nciptest.User{ID: "2002"})
	s.AddUser(nciptest.User{ID: "2003", Blocked: true})
	s.AddItem(nciptest.Item{ID: "39001", Record: "b1", Title: "Emma", CallNumber: "PR4034"})
	s.AddItem(nciptest.Item{ID: "39002", Record: "b2", Title: "Persuasion & Sense"})
	return s
}

// config is that of a target for a server.
func config(t testing.TB, address string) ncip.Config {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return ncip.Config{BaseURL: u, FromAgency: "MB", ToAgency: "LIBRARY", Settings: outbound.Settings{AllowPrivate: true}}
}

// setup returns a responder and a handler for it.
func setup(t testing.TB, o nciptest.Options, change ...func(*ncip.Config)) (*nciptest.Server, handlers.Handler) {
	t.Helper()
	s := library(o)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cfg := config(t, server.URL)
	for _, c := range change {
		c(&cfg)
	}
	return s, newHandler(t, cfg)
}

func newHandler(t testing.TB, cfg ncip.Config) handlers.Handler {
	t.Helper()
	h, err := ncip.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func lookUps(which ...string) func(*ncip.Config) {
	return func(c *ncip.Config) { c.LookUps = which }
}

// job makes a job; its key is the action's, so that a second one is a repeat.
func job(action, args string) schema.Envelope {
	return schema.NewJob("library", action, []byte(args), schema.WithKey("key/"+action))
}

// handle runs a job and returns what it reports.
func handle(t testing.TB, h handlers.Handler, env schema.Envelope) (string, error) {
	t.Helper()
	ctx := handlers.WithCall(t.Context(), handlers.CallOf("library", env))
	err := h.Handle(ctx, env)
	return string(handlers.ReportOf(ctx)), err
}

// must is handle without an error.
func must(t testing.TB, h handlers.Handler, env schema.Envelope) string {
	t.Helper()
	got, err := handle(t, h, env)
	if err != nil {
		t.Fatalf("%s: %v", env.Name, err)
	}
	return got
}

func wantKind(t *testing.T, err error, kind schema.ErrorKind, words string) {
	t.Helper()
	if err == nil || schema.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v is %v, want %v with %q", err, schema.KindOf(err), kind, words)
	}
}

func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("reported %q: %v", got, err)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(g)
	b, errB := json.Marshal(w)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("reported %s\n  want %s", a, b)
	}
}

// check fails the test unless every message that the responder got is as the schema has it.
func check(t *testing.T, s *nciptest.Server) {
	t.Helper()
	for _, r := range s.Received() {
		if err := nciptest.Check(r.Body); err != nil {
			t.Errorf("%s\n%v", r.Body, err)
		}
	}
}

// quiet is for servers whose handshakes are meant to fail.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
