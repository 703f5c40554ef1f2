package peer_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPeer_publishes_the_message_as_it_was(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		job := full(schema.NewJob("crm", "book.room", []byte("\r\n\r\nx"), schema.WithReplyTo("shop", "booked", "7")))
		event := full(schema.NewEvent("order.placed", nil, schema.WithPublic()))
		event.Key, event.Via = "", []string{"before"}
		other := full(schema.NewJob("crm", "x", nil))
		other.ID, other.Replay, other.Key = "new", &schema.Replay{Handler: "x", Of: "old", Number: 2}, "another"
		for _, c := range []struct {
			env  schema.Envelope
			edit func(*peer.Config)
			want func(*schema.Envelope)
		}{
			{job, func(*peer.Config) {}, func(e *schema.Envelope) { e.ReplyTo = nil }},
			{event, func(*peer.Config) {}, func(*schema.Envelope) {}},
			{other, func(c *peer.Config) { c.Target = "mailer" }, func(e *schema.Envelope) { e.ID, e.Replay, e.Target = "old", nil, "mailer" }},
		} {
			ctx := handlers.WithCall(t.Context(), handlers.Call{})
			if err := sender(t, server.URL, c.edit).Handle(ctx, c.env); err != nil {
				t.Fatal(err)
			}
			want := c.env
			c.want(&want)
			if got := string(handlers.ReportOf(ctx)); got != fmt.Sprintf(`{"id":%q}`, want.ID) {
				t.Errorf("reported %s", got)
			}
			want.Via = append(slices.Clone(want.Via), "here")
			want.Source = ""
			found := slices.IndexFunc(published(t, db), func(e schema.Envelope) bool { return e.ID == want.ID })
			if found < 0 {
				t.Fatalf("%s was not published", want.ID)
			}
			got := published(t, db)[found]
			if key := got.Key; !strings.HasPrefix(key, "here:") || !strings.HasSuffix(key, ":"+want.IdempotencyKey()) {
				t.Errorf("key %q of %q", key, want.IdempotencyKey())
			}
			got.Key, want.Key = "", ""
			got.Payload, want.Payload = append([]byte{}, got.Payload...), append([]byte{}, want.Payload...)
			if asJSON(t, got) != asJSON(t, want) {
				t.Errorf("published\n%s, want\n%s", asJSON(t, got), asJSON(t, want))
			}
		}
	})
}

// Whatever happens to requests and answers, and in however many processes: each message is published once.
func TestPeer_publishes_each_message_once(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		var lost atomic.Int64
		one, other := receiver(t, peer.StoreIn(db, nil)), receiver(t, peer.StoreIn(db, nil))
		var n atomic.Int64
		server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			i := n.Add(1)
			next := one // two processes behind a load balancer
			if i%2 == 0 {
				next = other
			}
			if i%3 == 0 { // it dies between the commit and the answer
				next.ServeHTTP(httptest.NewRecorder(), req)
				lost.Add(1)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, req)
		}))
		h := sender(t, server.URL)
		const messages = 10
		var all sync.WaitGroup
		for i := range messages {
			env := schema.NewEvent("x", []byte{byte(i)}, schema.WithID(fmt.Sprint("m", i)))
			for range 3 { // at the same time
				all.Go(func() {
					for {
						err := h.Handle(t.Context(), env)
						if err == nil {
							return
						}
						if t.Context().Err() != nil || schema.KindOf(err) == schema.Permanent {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		all.Wait()
		if lost.Load() == 0 {
			t.Error("no answer was lost")
		}
		if got := ids(published(t, db)); len(got) != messages || len(slices.Compact(got)) != messages {
			t.Errorf("published %q", got)
		}
	})
}

// What is remembered stays when the row leaves the outbox, and when the process starts anew.
func TestPeer_remembers_what_has_left_the_outbox(t *testing.T) {
	t.Parallel()
	db := testkit.SQLiteStore(t)
	env := schema.NewJob("crm", "book", nil)
	for i := range 3 {
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		ctx := handlers.WithCall(t.Context(), handlers.Call{})
		if err := sender(t, server.URL).Handle(ctx, env); err != nil {
			t.Fatal(err)
		}
		if duplicate := strings.Contains(string(handlers.ReportOf(ctx)), `"duplicate":true`); duplicate != (i > 0) {
			t.Errorf("time %d: reported %s", i+1, handlers.ReportOf(ctx))
		}
		rows := published(t, db)
		if want := 1 - min(i, 1); len(rows) != want {
			t.Fatalf("time %d: %d rows, want %d", i+1, len(rows), want)
		}
		if i == 0 {
			clearOutbox(t, db)
		}
	}
}

func clearOutbox(t *testing.T, db store) {
	t.Helper()
	err := db.Unit(t.Context(), func(u schema.Unit) error {
		_, err := u.Tx().(*sql.Tx).ExecContext(t.Context(), "DELETE FROM millbridge_outbox")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The keys of two bridges, and of two databases that one of them passes on, are not those of each other.
func TestPeer_keeps_the_keys_of_bridges_apart(t *testing.T) {
	t.Parallel()
	db := testkit.SQLiteStore(t)
	server := serve(t, receiver(t, peer.StoreIn(db, nil), func(c *peer.ReceiverConfig) {
		c.Senders["third"] = peer.Sender{Secrets: secrets(secretB), Allow: []string{"jobs.>"}}
	}))
	here := sender(t, server.URL)
	third := sender(t, server.URL, func(c *peer.Config) { c.Origin, c.Secrets = "third", secrets(secretB) })
	send := func(h handlers.Handler, id, source string) {
		t.Helper()
		env := schema.NewJob("crm", "book", map[string]int{"order": 7}, schema.WithID(id), schema.WithKey(strings.Repeat("ö", 200)))
		env.Source = source
		if err := h.Handle(t.Context(), env); err != nil {
			t.Fatal(err)
		}
	}
	send(here, "1", "/millbridge/one")
	send(here, "2", "/millbridge/two")
	send(third, "3", "/millbridge/one")
	send(here, "1", "/millbridge/two") // the same id, of another database
	send(here, "1", "/millbridge/one") // again
	keys := map[string]bool{}
	envs := published(t, db)
	for _, env := range envs {
		keys[env.Key] = true
	}
	if got := ids(envs); !slices.Equal(got, []string{"1", "2", "3"}) || len(keys) != 3 {
		t.Errorf("published %q with %d keys; the key of the second database stands for one message", got, len(keys))
	}
}

func TestPeer_refuses_an_id_that_was_used_for_another_message(t *testing.T) {
	t.Parallel()
	db := testkit.SQLiteStore(t)
	server := serve(t, receiver(t, peer.StoreIn(db, nil)))
	first := schema.NewJob("crm", "book", "1", schema.WithID("same"))
	if err := sender(t, server.URL).Handle(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"other content": sender(t, server.URL).Handle(t.Context(), schema.NewJob("crm", "book", "2", schema.WithID("same"))),
		"other target":  sender(t, server.URL, func(c *peer.Config) { c.Target = "mailer" }).Handle(t.Context(), first),
	} {
		if err == nil || schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "409") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := ids(published(t, db)); len(got) != 1 {
		t.Errorf("published %q", got)
	}
}

func TestPeer_may_run_again(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, func() handlertest.World {
		db := testkit.SQLiteStore(t)
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		return handlertest.World{
			Handler: func() handlers.Handler { return sender(t, server.URL) },
			State:   func() any { return ids(published(t, db)) },
		}
	}, schema.NewJob("crm", "a", "1", schema.WithID("one")), schema.NewEvent("b", "2", schema.WithID("two"), schema.WithKey("k")))
}

func TestPeer_previews_what_it_sends(t *testing.T) {
	t.Parallel()
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 1)
	var kept keep
	r := receiver(t, kept.store)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := new(strings.Builder)
		req.Body = readTo(req.Body, body)
		r.ServeHTTP(w, req)
		got <- request{req.Header, body.String()}
	}))
	h := sender(t, server.URL, func(c *peer.Config) { c.Secrets = secrets(secretB, secretA) })
	env := full(schema.NewJob("crm", "book", []byte{0, 255}))
	if err := h.Handle(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	sent := <-got
	previews, err := h.(handlers.Previewer).Preview(t.Context(), env)
	if err != nil || len(previews) != 1 {
		t.Fatalf("%v, %v", previews, err)
	}
	p := previews[0]
	want := map[string]string{}
	for name := range sent.header {
		want[name] = sent.header.Get(name)
	}
	delete(want, "Accept-Encoding")
	delete(want, "Content-Length")
	if n := strings.Count(want[webhook.HeaderSignature], "v1,"); n != 2 {
		t.Errorf("%d signatures", n)
	}
	want[webhook.HeaderSignature] = "***"
	want[webhook.HeaderTimestamp] = p.Header[webhook.HeaderTimestamp]
	if p.Body != sent.body || !maps.Equal(p.Header, want) || !strings.HasPrefix(p.Do, "POST "+server.URL+"/messages") {
		t.Errorf("preview\n%q, sent\n%q", p, sent)
	}
}

func TestPeer_over_TLS_with_own_certificates(t *testing.T) {
	t.Parallel()
	pki := testkit.NewPKI(t)
	var kept keep
	server := httptest.NewUnstartedServer(receiver(t, kept.store))
	server.TLS = pki.Server
	server.StartTLS()
	t.Cleanup(server.Close)
	env := schema.NewJob("crm", "book", nil)
	with := sender(t, server.URL, func(c *peer.Config) { c.TLSCAFile, c.TLSCertFile, c.TLSKeyFile = pki.CA, pki.Cert, pki.Key })
	if err := with.Handle(t.Context(), env); err != nil || len(kept.got) != 1 {
		t.Errorf("with certificate: %v", err)
	}
	for name, edit := range map[string]func(*peer.Config){
		"no certificate": func(c *peer.Config) { c.TLSCAFile = pki.CA },
		"no authority":   func(c *peer.Config) { c.TLSCertFile, c.TLSKeyFile = pki.Cert, pki.Key },
	} {
		if err := sender(t, server.URL, edit).Handle(t.Context(), env); err == nil || schema.KindOf(err) != schema.Temporary {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfig_validate_says_everything_by_key(t *testing.T) {
	t.Parallel()
	at := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, c := range map[string]struct {
		edit func(*peer.Config)
		want string // the keys complained about
	}{
		"good":        {func(*peer.Config) {}, ""},
		"public key":  {func(c *peer.Config) { c.Secrets = secrets("whpk_" + strings.Repeat("A", 43) + "=") }, "secrets"},
		"nothing":     {func(c *peer.Config) { *c = peer.Config{} }, "url origin secrets"},
		"other url":   {func(c *peer.Config) { c.URL = at("ftp://x/hush") }, "url"},
		"user in url": {func(c *peer.Config) { c.URL = at("https://hush@x") }, "url"},
		"names":       {func(c *peer.Config) { c.Origin, c.Target = "A", "b.c" }, "origin target"},
		"bad secret":  {func(c *peer.Config) { c.Secrets = secrets("hush") }, "secrets"},
		"network":     {func(c *peer.Config) { c.AllowedNetworks = []string{"x"} }, "allowed_networks"},
	} {
		cfg := config(t, "https://x")
		c.edit(&cfg)
		err := cfg.Validate()
		var keys []string
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				key, _, _ := strings.Cut(line, ": ")
				keys = append(keys, key)
			}
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if _, newErr := peer.New(cfg); (newErr != nil) != (err != nil) || strings.Contains(fmt.Sprint(newErr), "hush") {
			t.Errorf("%s: New says %v", name, newErr)
		}
	}
}
