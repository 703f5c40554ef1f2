package reshare

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

// clock is one that tests turn.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// desk is a gateway with a client, whose clocks are one.
type desk struct {
	*resharetest.Server
	client *client
	clock  *clock
}

func newDesk(t *testing.T, cfg resharetest.Config, password string, serve func(*resharetest.Server) http.Handler) desk {
	t.Helper()
	d := desk{clock: &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	cfg.Now = d.clock.read
	cfg.Tenants = []resharetest.Tenant{{Name: "east", Username: "bridge", Password: "right"}}
	d.Server = resharetest.New(cfg)
	server := httptest.NewServer(serve(d.Server))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	d.client, err = newClient(Config{
		BaseURL: base, Tenant: "east", Username: "bridge", Password: configgroup.NewSecret(password), Settings: outbound.Settings{AllowPrivate: true},
	}, d.clock.read)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func plainly(s *resharetest.Server) http.Handler { return s }

// ask makes a request that needs a token.
func (d desk) ask(ctx context.Context) error {
	s, err := d.client.session("")
	if err != nil {
		return err
	}
	_, err = d.client.send(ctx, s, call{method: http.MethodGet, path: pathRequests})
	return err
}

func (d desk) wantLogins(t *testing.T, want int, when string) {
	t.Helper()
	if got := d.Logins(); got != want {
		t.Errorf("%s: %d logins, want %d", when, got, want)
	}
}

func TestLogin_is_renewed_halfway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  resharetest.Config
		life time.Duration
	}{
		{"a token with an end", resharetest.Config{TokenLife: 10 * time.Minute}, 10 * time.Minute},
		{"a token without", resharetest.Config{Legacy: true}, legacyLife},
	} {
		d := newDesk(t, c.cfg, "right", plainly)
		for i, wait := range []time.Duration{0, c.life/2 - time.Second, time.Second, c.life / 4} {
			d.clock.turn(wait)
			if err := d.ask(t.Context()); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			d.wantLogins(t, []int{1, 1, 2, 2}[i], c.name)
		}
	}
}

func TestLogin_after_a_token_was_refused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resharetest.Config{}, "right", plainly)
	for i := range 3 {
		if err := d.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.wantLogins(t, i+1, "after the tokens were ended")
		d.ExpireTokens()
	}
}

// Fifty messages with one expired token log in once, and all go through.
func TestLogin_is_made_by_one_for_all(t *testing.T) {
	t.Parallel()
	const many = 50
	var mu sync.Mutex
	refused, all := 0, make(chan struct{})
	d := newDesk(t, resharetest.Config{}, "right", func(s *resharetest.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.Header.Get(headerToken), "-1") { // everybody has seen the first token refused before one is told
				mu.Lock()
				if refused++; refused == many {
					close(all)
				}
				mu.Unlock()
				<-all
			}
			s.ServeHTTP(w, r)
		})
	})
	s, err := d.client.session("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.use(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	d.ExpireTokens()
	var running sync.WaitGroup
	for range many {
		running.Go(func() {
			if err := d.ask(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	d.wantLogins(t, 2, "fifty at once")
}

// A wrong password is an operator's: nothing is given up, and FOLIO, which would block the user, is not asked again and again.
func TestLogin_that_is_refused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, resharetest.Config{}, "not-it", plainly)
	for range 3 {
		err := d.ask(t.Context())
		if wait, ok := schema.SnoozeOf(err); !ok || wait != refusedWait {
			t.Errorf("error %v waits %v", err, wait)
		}
		if text := schema.Reason(err); !strings.Contains(text, "Wrong username or wrong password") || !strings.Contains(text, "422") || strings.Contains(text, "not-it") {
			t.Errorf("reason %q", text)
		}
	}
	d.wantLogins(t, 1, "within the wait")
	d.clock.turn(refusedWait - time.Minute)
	if wait, _ := schema.SnoozeOf(d.ask(t.Context())); wait != time.Minute {
		t.Errorf("waits %v of the last minute", wait)
	}
	d.clock.turn(time.Minute)
	_ = d.ask(t.Context())
	d.wantLogins(t, 2, "after the wait")
}

// A new token that is refused, too, as that of a user who was made inactive, is the same.
func TestLogin_whose_token_is_worth_nothing(t *testing.T) {
	t.Parallel()
	asked := 0
	d := newDesk(t, resharetest.Config{}, "right", func(s *resharetest.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == pathRequests {
				asked++
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = w.Write([]byte("Invalid token: user with id 1 is not active"))
				return
			}
			s.ServeHTTP(w, r)
		})
	})
	for range 3 {
		err := d.ask(t.Context())
		if wait, ok := schema.SnoozeOf(err); !ok || wait != refusedWait || !strings.Contains(err.Error(), "is not active") {
			t.Errorf("error %v waits %v", err, wait)
		}
	}
	d.wantLogins(t, 2, "the first, and once more")
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

func TestLogin_when_the_gateway_is_ill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		snooze bool
	}{
		"down":               {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false},
		"nobody logs in":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, false},
		"a page":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello</html>")) }, false},
		"a cookie of spaces": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", cookieToken+`="a b"`) }, false},
		"no token":           {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(headerToken, "") }, false},
		"broken off":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		"moved":              {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusMovedPermanently) }, true},
		"forbidden":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, true},
		"unauthorised":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, true},
	} {
		d := newDesk(t, resharetest.Config{}, "right", func(*resharetest.Server) http.Handler { return c.answer })
		err := d.ask(t.Context())
		if _, ok := schema.SnoozeOf(err); err == nil || schema.KindOf(err) != schema.Temporary || ok != c.snooze {
			t.Errorf("%s: error %v, snoozes %v", name, err, ok)
		}
	}
}

// Whoever logs in for all may be told to stop; another takes over.
func TestLogin_when_who_logs_in_is_stopped(t *testing.T) {
	t.Parallel()
	in, out := make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	d := newDesk(t, resharetest.Config{}, "right", func(s *resharetest.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				close(in)
				<-out
			}
			s.ServeHTTP(w, r)
		})
	})
	t.Cleanup(func() { close(out) })
	first, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- d.ask(first) }()
	<-in
	go func() { ended <- d.ask(t.Context()) }()
	stop()
	errs := []error{<-ended, <-ended}
	if !slices.Contains(errs, nil) {
		t.Errorf("errors %v", errs)
	}
	for _, err := range errs {
		if err != nil && schema.KindOf(err) != schema.Shutdown {
			t.Errorf("the one that was stopped: %v", err)
		}
	}
}
