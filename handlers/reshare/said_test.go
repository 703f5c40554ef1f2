package reshare_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

func say(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestErrors_of_answers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		kind, body string
		want       schema.ErrorKind
		says       string
	}{
		{400, "text/plain", "No such Tenant east", schema.Permanent, "No such Tenant east"},
		{400, "text/plain", "Unable to retrieve permissions for user with id '1': timeout", schema.Temporary, "Unable to retrieve permissions"},
		{403, "text/plain", "Access for user 'bridge' (1) requires permission: rs.patronrequests.item.post", schema.Permanent, "rs.patronrequests.item.post"},
		{404, "text/plain", "No suitable module found for path /rs/patronrequests for tenant east", schema.Temporary, "No suitable module"},
		{404, "application/json", `{"message":"Not Found","error":404}`, schema.Permanent, "Not Found"},
		{422, "application/json", `{"message":"title cannot be blank","path":"/x"}`, schema.Permanent, "title cannot be blank"},
		{422, "application/json", `{"total":2,"_embedded":{"errors":[{"message":"one"},{"message":"two"}]}}`, schema.Permanent, "one; two"},
		{400, "application/json;charset=UTF-8", `{"code":-3,"message":"NCIP AcceptItem call failed"}`, schema.Temporary, "NCIP AcceptItem call failed"},
		{400, "application/json", `{"code":-2,"message":"No location specified"}`, schema.Permanent, "No location specified"},
		{400, "application/json", `{"message":"System error occurred while trying to process request 1"}`, schema.Temporary, "System error"},
		{400, "application/json", `{"message":"Unable to perform action as we are waiting for existing network activity to complete"}`, schema.Temporary, "waiting"},
		{500, "application/json", `{"error":500,"message":"boom","stackTrace":["at x"]}`, schema.Temporary, "500 Internal Server Error: boom"},
		{500, "application/json", `{"message":{"not":"a text"}}`, schema.Temporary, "answered 500"},
		{502, "text/html", "<html>Bad gateway</html>", schema.Temporary, "answered 502"},
		{503, "text/plain", "a\nb\x00\x1b[31mc", schema.Temporary, "a b"},
		{429, "text/plain", "slow down", schema.Temporary, "slow down"},
		{301, "text/plain", "", schema.Permanent, "redirects are not followed"},
		{200, "application/json", `{"id":"1"}`, schema.Temporary, "no list of patron requests"},
		{200, "application/json", `null`, schema.Temporary, "no list of patron requests"},
		{200, "application/json", `[{"id":""}]`, schema.Temporary, "no list of patron requests"},
		{200, "application/json", `[{"id":"../x"}]`, schema.Temporary, "no list of patron requests"},
		{200, "text/html", "<html>Please log in</html>", schema.Temporary, "no list of patron requests"},
		{204, "", "", schema.Temporary, "no list of patron requests"},
		{500, "text/plain", strings.Repeat("long ", 100_000), schema.Temporary, "long long"},
	} {
		g := open(t, resharetest.Config{})
		g.instead("", say(c.status, c.kind, c.body))
		_, err := run(t, newTarget(t, g.config()), job(reshare.ActionCreate, book()))
		wantKind(t, err, c.want)
		wantText(t, err, c.says, "/rs/patronrequests")
		if len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\n\x00\x1b") || strings.Contains(err.Error(), "<html>") || strings.Contains(err.Error(), "at x") {
			t.Errorf("%d %s: %q", c.status, c.kind, err)
		}
	}
}

func TestErrors_carry_the_wait_that_is_asked_for(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	g.instead("", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := run(t, newTarget(t, g.config()), job(reshare.ActionCreate, book()))
	if wait, ok := schema.RetryAfterOf(err); !ok || wait != 90*time.Second {
		t.Errorf("error %v waits %v", err, wait)
	}
}

// An answer to the creation that cannot be read, or does not come, leads to no second request.
func TestCreate_when_the_answer_is_lost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w http.ResponseWriter){
		"broken off": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"cut": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"id"`)
		},
		"a page":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		"an error": func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) },
	} {
		g := open(t, resharetest.Config{})
		g.instead("POST /rs/patronrequests", func(w http.ResponseWriter, r *http.Request) {
			g.Server.ServeHTTP(discard{http.Header{}}, r)
			lose(w)
		})
		h, env := newTarget(t, g.config()), job(reshare.ActionCreate, book(), schema.WithKey("loan-1"))
		_, err := run(t, h, env)
		wantKind(t, err, schema.Temporary)
		if made := must[reshare.Created](t, h, env); !made.Existing || len(g.Requests("east")) != 1 {
			t.Errorf("%s: %+v, and there are %d", name, made, len(g.Requests("east")))
		}
	}
}

func TestErrors_of_hostile_answers(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   schema.ErrorKind
	}{
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat("[", 32<<10))
			for {
				n, err := w.Write(block)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}, schema.Permanent},
		"bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			for range 16 {
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, schema.Temporary},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, schema.Temporary},
		"hangs in the body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "[")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, schema.Temporary},
		"upgrades": {say(101, "", ""), schema.Permanent},
		"deep":     {say(200, "application/json", strings.Repeat("[", 20_000)), schema.Temporary},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := open(t, resharetest.Config{})
			g.instead("", c.answer)
			cfg := g.config()
			hangs := strings.HasPrefix(name, "hangs")
			if hangs { // the others end by themselves, on a busy machine later than that
				cfg.RequestTimeout = 500 * time.Millisecond
			}
			_, err := run(t, newTarget(t, cfg), job(reshare.ActionCreate, book()))
			wantKind(t, err, c.want)
			if hangs {
				wantText(t, err, "no complete answer within 500ms")
			}
		})
	}
	t.Cleanup(func() {
		if n := sent.Load(); n > 64<<20 {
			t.Errorf("%d bytes of the endless answer were taken", n)
		}
	})
}

func TestErrors_when_the_run_is_ended(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	in := make(chan struct{})
	g.instead("", func(_ http.ResponseWriter, r *http.Request) { close(in); <-r.Context().Done() })
	h := newTarget(t, g.config())
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-in; stop() }()
	wantKind(t, h.Handle(ctx, job(reshare.ActionCreate, book())), schema.Shutdown)
}

func TestErrors_of_an_address_that_is_not_allowed(t *testing.T) {
	t.Parallel()
	cfg := config("http://localhost:1")
	cfg.AllowPrivate = false
	_, err := run(t, newTarget(t, cfg), job(reshare.ActionCreate, book()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "is not allowed: loopback")
}

// Neither token nor password come out again, even if the other side repeats them, and no search of a patron's data.
func TestSecrets_stay_inside(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	var seen strings.Builder
	note := func(v any) {
		fmt.Fprintf(&seen, "%v %+v %#v %s\n", v, v, v, v)
		slog.New(slog.NewTextHandler(&seen, nil)).Info("x", "v", v)
	}
	note(h)
	note(g.config())
	for _, kind := range []string{"text/plain", "application/json"} {
		g.instead("", func(w http.ResponseWriter, r *http.Request) {
			token := r.Header.Get("X-Okapi-Token")
			text := "you sent " + token + " and " + token[:3] + "\x00" + token[3:]
			if kind == "application/json" {
				text = `{"message":"` + strings.ReplaceAll(text, "\x00", `\u0000`) + `"}`
			}
			say(500, kind, text)(w, r)
		})
		_, err := run(t, h, job(reshare.ActionList, reshare.ListArgs{Term: "ada-lovelace", Match: []string{"patronSurname"}}))
		note(err)
		wantText(t, err, "you sent *** and ***")
	}
	g.instead("POST /authn/login-with-expiry", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		say(422, "text/plain", string(body))(w, r)
	})
	for _, password := range []string{eastPassword, `east"-secret<1>`} {
		cfg := g.config()
		cfg.Password = configgroup.NewSecret(password)
		_, err := run(t, newTarget(t, cfg), job(reshare.ActionCreate, book()))
		note(err)
		wantText(t, err, "bridge", `"***"`)
	}
	g.instead("", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := run(t, h, job(reshare.ActionList, reshare.ListArgs{Term: "ada-lovelace", Match: []string{"patronSurname"}}))
	note(err)
	for _, secret := range []string{eastPassword, "-secret", westPassword, "access-east", "ada-lovelace"} {
		if strings.Contains(seen.String(), secret) {
			t.Errorf("%q came out: %s", secret, seen.String())
		}
	}
}
