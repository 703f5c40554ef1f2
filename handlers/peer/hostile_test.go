package peer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/schema"
)

func TestSender_judges_whatever_it_is_answered(t *testing.T) {
	t.Parallel()
	env := schema.NewJob("crm", "book", nil)
	plain := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	if _, err := zip.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	stored := fmt.Sprintf(`{"id":%q}`, env.ID)
	const success = schema.ErrorKind(255)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   schema.ErrorKind
		wait   time.Duration
		text   string
	}{
		"stored":          {plain(200, stored), success, 0, ""},
		"another message": {plain(200, `{"id":"x"}`), schema.Temporary, 0, "not that of a Millbridge"},
		"not JSON":        {plain(200, "<html>welcome"), schema.Temporary, 0, "not that of a Millbridge"},
		"nothing":         {plain(204, ""), schema.Temporary, 0, "not that of a Millbridge"},
		"keys":            {plain(401, "no signature"), schema.Temporary, 5 * time.Minute, "401 Unauthorized: no signature"},
		"not allowed":     {plain(403, "jobs.x is not allowed\nsecond line"), schema.Permanent, 0, "403 Forbidden: jobs.x is not allowed"},
		"used":            {plain(409, "used"), schema.Permanent, 0, "used"},
		"too large":       {plain(413, ""), schema.Permanent, 0, "413"},
		"invalid":         {plain(422, "loop\x00\x1b[31m"), schema.Permanent, 0, "loop"},
		"a page":          {plain(404, "<html>\n<body>"), schema.Permanent, 0, "404 Not Found"},
		"down":            {plain(503, strings.Repeat("x", 5000)), schema.Temporary, 0, "503"},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, schema.Temporary, 0, "redirects are not followed"},
		"moved for good": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		}, schema.Permanent, 0, "301"},
		"endless": {plain(200, strings.Repeat(" ", 2<<20)), schema.Permanent, 0, "more than"},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}, schema.Temporary, 0, "broke off"},
		"nobody": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, schema.Temporary, 0, "EOF"},
		"a bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, schema.Temporary, 0, "not that of a Millbridge"},
		"come again later": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, schema.Temporary, 7 * time.Second, "429"},
	} {
		err := sender(t, serve(t, c.answer).URL).Handle(t.Context(), env)
		if (err == nil) != (c.kind == success) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			continue
		}
		wait, _ := schema.RetryAfterOf(err)
		if schema.KindOf(err) != c.kind || wait != c.wait || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (%v, again after %v)", name, err, schema.KindOf(err), wait)
		}
		for _, secret := range []string{"hush", secretA[6:], "\n", "\x1b", "/messages"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error has %q: %v", name, secret, err)
			}
		}
		if len(err.Error()) > 400 {
			t.Errorf("%s: %d characters", name, len(err.Error()))
		}
	}
}

func TestSender_ends_with_the_run(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-over
	}))
	defer close(over)
	why := errors.New("time is up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	if err := sender(t, server.URL).Handle(ctx, schema.NewJob("crm", "book", nil)); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestSender_does_not_reach_inside_by_itself(t *testing.T) {
	t.Parallel()
	server := serve(t, http.NotFoundHandler())
	err := sender(t, server.URL, func(c *peer.Config) { c.AllowPrivate = false }).Handle(t.Context(), schema.NewJob("crm", "book", nil))
	var refused *outbound.AddressError
	if !errors.As(err, &refused) || schema.KindOf(err) != schema.Permanent {
		t.Errorf("got %v", err)
	}
}

func TestSender_notices_loops(t *testing.T) {
	t.Parallel()
	env := schema.NewJob("crm", "book", nil)
	env.Via = []string{"here", "there"}
	err := sender(t, "http://127.0.0.1:1").Handle(t.Context(), env)
	if !errors.Is(err, schema.ErrLoop) || schema.KindOf(err) != schema.Permanent {
		t.Errorf("got %v", err)
	}
}

// What can be read can be written again, and whatever cannot is a permanent error.
func FuzzDecode(f *testing.F) {
	env := full(schema.NewJob("crm", "book", "x", schema.WithID("1")))
	env.Via = []string{"here"}
	f.Add(peer.Encode(env))
	f.Add([]byte("ce-type: event.public.x\r\nce-id: 1\r\n\r\n"))
	f.Add([]byte("ce-type: job.\r\n\r\n"))
	f.Add([]byte("\r\n\r\n"))
	f.Add([]byte("a: b\r\na: c\r\n\r\nx"))
	f.Fuzz(func(t *testing.T, body []byte) {
		env, err := peer.Decode(body)
		if err != nil {
			if schema.KindOf(err) != schema.Permanent {
				t.Fatalf("%v is %v", err, schema.KindOf(err))
			}
			return
		}
		if env.Replay != nil {
			t.Fatalf("a replay: %+v", env)
		}
		if env.Validate(0) != nil {
			return // the outbox refuses it
		}
		again, err := peer.Decode(peer.Encode(env))
		if err != nil || asJSON(t, again) != asJSON(t, env) {
			t.Fatalf("%+v\nbecomes %+v, %v", env, again, err)
		}
	})
}
