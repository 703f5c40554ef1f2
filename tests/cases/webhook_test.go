package cases

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

// An endpoint is a real HTTP server that answers its requests in turn, with the last answer for ever.
type endpoint struct {
	*httptest.Server
	mu    sync.Mutex
	calls []call
}

type call struct {
	at     time.Time
	header http.Header
	body   []byte
}

func serve(t *testing.T, answers ...http.HandlerFunc) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.calls = append(e.calls, call{time.Now(), r.Header.Clone(), body})
		n := len(e.calls)
		e.mu.Unlock()
		answers[min(n, len(answers))-1](w, r)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) got() []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

func answer(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// reset ends the connection after the request was read.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

var text = configgroup.NewSecret

// hook makes a webhook the handler of a target; loopback is allowed unless the configuration has its own rules.
func hook(t *testing.T, name string, retry schema.RetryPolicy, cfg webhook.Config) handlers.Target {
	t.Helper()
	if cfg.Network == nil {
		cfg.AllowPrivate = true
	}
	h, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return handlers.Target{Name: name, Handler: h, Policy: handlers.Policy{Retry: retry}}
}

// soon tries five times within a moment.
var soon = schema.RetryPolicy{MaxAttempts: 5, Base: 30 * time.Millisecond, Factor: 1}

func TestC23_signed_bytes_are_the_sent_bytes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		server := serve(t, answer(500), reset, answer(200))
		run(t, w.open(t, hook(t, "crm", schema.RetryPolicy{MaxAttempts: 5, Base: 1100 * time.Millisecond, Factor: 1}, webhook.Config{URL: text(server.URL), Secrets: []configgroup.Secret{text(secret)}})))
		body := `{"b":1, "a":1.0,"n":9007199254740993}`
		job := schema.NewJob("crm", "contact.update", []byte(body), schema.WithContentType("application/json"))
		w.publish(t, job)
		testkit.Eventually(t, time.Minute, func() error { return calls(server, 3) })
		stamps := []int64{}
		for i, c := range server.got() {
			if string(c.body) != body {
				t.Errorf("attempt %d has the body %q", i+1, c.body)
			}
			if err := webhook.Verify(secret, c.header, c.body, time.Minute); err != nil {
				t.Errorf("attempt %d: %v", i+1, err)
			}
			if id := c.header.Get("webhook-id"); id != job.ID {
				t.Errorf("attempt %d has the id %q, want %q", i+1, id, job.ID)
			}
			stamp, err := strconv.ParseInt(c.header.Get("webhook-timestamp"), 10, 64)
			if err != nil || stamp > c.at.Unix() || i > 0 && stamp < server.got()[i-1].at.Unix() {
				t.Errorf("attempt %d, at %d, was stamped %d (%v): want a time after the attempt before", i+1, c.at.Unix(), stamp, err)
			}
			stamps = append(stamps, stamp)
		}
		if stamps[0] >= stamps[1] || stamps[1] >= stamps[2] {
			t.Errorf("timestamps %v", stamps)
		}
		w.settled(t, "crm")
		if n := len(server.got()); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

func calls(e *endpoint, want int) error {
	if n := len(e.got()); n < want {
		return fmt.Errorf("%d calls, want %d", n, want)
	}
	return nil
}

// settled waits until no job of the target is left in the outbox or the stream.
func (w *world) settled(t *testing.T, target string) {
	t.Helper()
	js := testkit.JetStream(t, w.conn)
	testkit.Eventually(t, time.Minute, func() error {
		if rows, err := w.rows(); err != nil || len(rows) > 0 {
			return fmt.Errorf("%d rows in the outbox, %v", len(rows), err)
		}
		stream, err := js.Stream(t.Context(), schema.Subjects{}.StreamName(schema.Jobs))
		if err != nil {
			return err
		}
		if _, err = stream.GetLastMsgForSubject(t.Context(), schema.Subjects{}.Target(target)); err == nil {
			return errors.New("a job is still in the stream")
		}
		return nil
	})
}

func TestC24_webhooks_do_not_lead_inside(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		inside := serve(t, answer(200))
		port := inside.URL[strings.LastIndexByte(inside.URL, ':'):]
		for _, u := range []string{inside.URL, "http://2130706433" + port, "http://0177.0.0.1" + port, "http://[::ffff:127.0.0.1]" + port, "http://169.254.169.254/", "http://user:pass@example.org/"} {
			if _, err := webhook.New(webhook.Config{URL: text(u)}); err == nil {
				t.Errorf("%s is accepted without an opt-in", u)
			}
		}

		var targets []handlers.Target
		var jobs []schema.Envelope
		reasons := make(map[string]string) // handler -> part of the reason
		add := func(name, reason string, cfg webhook.Config) {
			targets = append(targets, hook(t, name, schema.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond, Factor: 1}, cfg))
			jobs = append(jobs, schema.NewJob(name, "do", nil))
			reasons[name] = reason
		}
		for _, code := range []int{301, 302, 303, 307, 308} {
			for i, location := range []string{inside.URL, "http://169.254.169.254/latest/meta-data/"} {
				add(fmt.Sprintf("redirect-%d-%d", code, i), fmt.Sprintf("answered %d", code), webhook.Config{URL: text(serve(t, answer(code, "Location", location)).URL)})
			}
		}
		secure := httptest.NewTLSServer(answer(302, "Location", inside.URL)) // a downgrade besides
		t.Cleanup(secure.Close)
		downgrade := webhook.Config{URL: text(secure.URL), Network: &outbound.Network{AllowPrivate: true, TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig}}
		add("downgrade", "answered 302", downgrade)
		for i, address := range []string{"127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1", "0.0.0.0", "100.64.0.1", "169.254.169.254", "192.168.0.1", "fd00::1"} {
			cfg := webhook.Config{URL: text("http://hook.test" + port), Network: &outbound.Network{Resolver: resolver(t, func() string { return address })}}
			add(fmt.Sprintf("name-%d", i), "is not allowed", cfg)
		}

		// A name that gives another answer each time: 127.0.0.2 is allowed here, where the inside listens too is not.
		outside, err := net.Listen("tcp", "127.0.0.2"+port)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		turn, reached := 0, 0
		server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			reached++
			w.Header().Set("Connection", "close")
		})}
		go func() { _ = server.Serve(outside) }()
		t.Cleanup(func() { server.Close() })
		rebinding := webhook.Config{URL: text("http://hook.test" + port), Network: &outbound.Network{
			AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
			Resolver: resolver(t, func() string {
				mu.Lock()
				defer mu.Unlock()
				return []string{"127.0.0.2", "127.0.0.1"}[turn]
			}),
		}}
		targets = append(targets, hook(t, "rebinding", soon, rebinding))

		bridge := w.open(t, targets...)
		jobs = append(jobs, schema.NewJob("rebinding", "do", nil))
		w.publish(t, jobs...)
		run(t, bridge)
		w.settled(t, "rebinding")
		mu.Lock()
		turn = 1
		mu.Unlock()
		w.publish(t, schema.NewJob("rebinding", "do", nil))
		reasons["rebinding"] = "is not allowed"

		testkit.Eventually(t, time.Minute, func() error {
			if n := len(w.dead(t)); n < len(reasons) {
				return fmt.Errorf("%d dead letters of %d", n, len(reasons))
			}
			return nil
		})
		for _, l := range w.dead(t) {
			if want, ok := reasons[l.Handler]; !ok || !strings.Contains(l.Reason, want) {
				t.Errorf("%s died of %q, want %q", l.Handler, l.Reason, want)
			}
			if strings.Contains(l.Reason, "not allowed") && l.Attempts != 1 {
				t.Errorf("%s was tried %d times", l.Handler, l.Attempts)
			}
			delete(reasons, l.Handler)
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(inside.got()); n != 0 || reached != 1 {
			t.Errorf("%d requests inside, want none; %d outside, want 1", n, reached)
		}
	})
}

// resolver asks a real DNS server on loopback that gives every name the address of the moment.
func resolver(t *testing.T, address func() string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(reply(buf[:n], netip.MustParseAddr(address())), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// reply answers one question for A or AAAA records.
func reply(q []byte, addr netip.Addr) []byte {
	end := 12
	for q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5
	kind := binary.BigEndian.Uint16(q[end-4:])
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if (kind == 1) == addr.Is4() {
		raw := addr.AsSlice()
		out[7] = 1
		out = append(append(out, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw))), raw...)
	}
	return out
}

func TestC25_answers_with_a_meaning(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		date := func(w http.ResponseWriter, _ *http.Request) { // of a second, so at least 1 s from now
			w.Header().Set("Retry-After", time.Now().UTC().Add(2*time.Second).Format(http.TimeFormat))
			w.WriteHeader(429)
		}
		tests := map[string]struct {
			answers []http.HandlerFunc
			calls   int
			dead    string        // part of the reason, empty when handled
			min     time.Duration // between the first two calls; never more than soonest later
		}{
			"seconds":      {[]http.HandlerFunc{answer(429, "Retry-After", "1"), answer(200)}, 2, "", time.Second},
			"date":         {[]http.HandlerFunc{date, answer(200)}, 2, "", 900 * time.Millisecond},
			"unavailable":  {[]http.HandlerFunc{answer(503, "Retry-After", "1"), answer(200)}, 2, "", time.Second},
			"too-long":     {[]http.HandlerFunc{answer(429, "Retry-After", "999999999"), answer(200)}, 2, "", 2 * time.Second}, // its limit below
			"negative":     {[]http.HandlerFunc{answer(429, "Retry-After", "-1"), answer(200)}, 2, "", 30 * time.Millisecond},
			"words":        {[]http.HandlerFunc{answer(429, "Retry-After", "soon"), answer(200)}, 2, "", 30 * time.Millisecond},
			"gone":         {[]http.HandlerFunc{answer(410)}, 1, "answered 410 Gone", 0},
			"bad-request":  {[]http.HandlerFunc{answer(400)}, 1, "answered 400 Bad Request", 0},
			"timeout":      {[]http.HandlerFunc{answer(408), answer(200)}, 2, "", 30 * time.Millisecond},
			"no-content":   {[]http.HandlerFunc{answer(204)}, 1, "", 0},
			"moved":        {[]http.HandlerFunc{answer(301, "Location", "/")}, 1, "answered 301 Moved Permanently", 0},
			"reset":        {[]http.HandlerFunc{reset, answer(200)}, 2, "", 30 * time.Millisecond},
			"never":        {[]http.HandlerFunc{answer(500)}, 5, "answered 500 Internal Server Error", 30 * time.Millisecond},
			"never-enough": {[]http.HandlerFunc{reset}, 5, "post: ", 30 * time.Millisecond},
		}
		const soonest = 15 * time.Second // what a busy machine may add; whoever takes nonsense for a time waits much longer
		release := make(chan struct{})
		stuck := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		fast := serve(t, answer(200))
		servers := make(map[string]*endpoint)
		targets := []handlers.Target{hook(t, "stuck", soon, webhook.Config{URL: text(stuck.URL)}), hook(t, "fast", soon, webhook.Config{URL: text(fast.URL)})}
		for name, tt := range tests {
			servers[name] = serve(t, tt.answers...)
			most := 10 * time.Minute
			if name == "too-long" {
				most = 2 * time.Second
			}
			targets = append(targets, hook(t, name, soon, webhook.Config{URL: text(servers[name].URL), RetryAfterMax: most}))
		}
		run(t, w.open(t, targets...))

		// One slow target, all its workers busy, does not slow another.
		for range 20 {
			w.publish(t, schema.NewJob("stuck", "do", nil))
		}
		testkit.Eventually(t, time.Minute, func() error { return calls(stuck, handlers.DefaultConcurrency) })
		for range 20 {
			w.publish(t, schema.NewJob("fast", "do", nil))
		}
		testkit.Eventually(t, time.Minute, func() error { return calls(fast, 20) }) // while all of stuck's hang
		if n := len(stuck.got()); n != handlers.DefaultConcurrency {
			t.Errorf("%d requests hang at the stuck target, want %d", n, handlers.DefaultConcurrency)
		}
		close(release)

		for name := range tests {
			w.publish(t, schema.NewJob(name, "do", []byte("x")))
		}
		for name := range tests {
			w.settled(t, name)
		}
		reasons := make(map[string]string)
		for _, l := range w.dead(t) {
			reasons[l.Handler] = l.Reason
			if l.Attempts != tests[l.Handler].calls {
				t.Errorf("%s: the dead letter counts %d attempts, want %d", l.Handler, l.Attempts, tests[l.Handler].calls)
			}
		}
		for name, tt := range tests {
			got := servers[name].got()
			if len(got) != tt.calls {
				t.Errorf("%s: %d calls, want %d", name, len(got), tt.calls)
			}
			if reason, dead := reasons[name]; dead != (tt.dead != "") || !strings.Contains(reason, tt.dead) {
				t.Errorf("%s: dead letter %q, want %q", name, reason, tt.dead)
			}
			if len(got) > 1 {
				if gap := got[1].at.Sub(got[0].at); gap < tt.min || gap > tt.min+soonest {
					t.Errorf("%s: the second call came after %v, want %v", name, gap, tt.min)
				}
			}
		}
	})
}
