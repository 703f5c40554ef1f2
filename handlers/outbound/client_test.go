package outbound_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// counted is a server that counts the connections it accepts.
func counted(t *testing.T, handle http.HandlerFunc) (server *httptest.Server, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server = httptest.NewUnstartedServer(handle)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server, connections
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func get(t *testing.T, client *http.Client, url string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := outbound.Read(res); err != nil || string(body) != "hello" {
		t.Fatalf("got %q, error %v", body, err)
	}
}

func TestClients_of_the_same_rules_share_connections(t *testing.T) {
	t.Parallel()
	server, connections := counted(t, hello)
	one, two := netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")
	for i, networks := range [][]netip.Prefix{
		{one, two}, {two, one}, {one, one, two}, {netip.MustParsePrefix("127.0.0.1/8"), two}, // the same in other words
	} {
		get(t, outbound.Client(outbound.Network{AllowedNetworks: networks}, time.Duration(i+1)*time.Minute), server.URL)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for the same rules, want 1", n)
	}
}

// A connection that is there already is not checked again, so nobody may come by one that its rules would refuse.
func TestClients_of_other_rules_share_nothing(t *testing.T) {
	t.Parallel()
	server, connections := counted(t, hello)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	rules := []outbound.Network{
		{AllowPrivate: true},
		{AllowedNetworks: loopback},
		{AllowPrivate: true, AllowedNetworks: loopback},
		{AllowPrivate: true, TLS: &tls.Config{ServerName: "a"}},
		{AllowPrivate: true, TLS: &tls.Config{ServerName: "b"}},
		{AllowPrivate: true, Resolver: &net.Resolver{PreferGo: true}},
		{AllowPrivate: true, Resolver: &net.Resolver{}},
	}
	for _, n := range rules {
		get(t, outbound.Client(n, 0), server.URL)
	}
	if n := connections.Load(); n != int64(len(rules)) {
		t.Errorf("%d connections for %d sets of rules", n, len(rules))
	}
	_, err := outbound.Client(outbound.Network{}, 0).Get(server.URL)
	var refused *outbound.AddressError
	if schema.KindOf(err) != schema.Permanent || !errors.As(err, &refused) || refused.Reason != "loopback" || !strings.Contains(err.Error(), "loopback, which allow_private permits") {
		t.Errorf("rules that allow nothing inside: error %v (%v)", err, schema.KindOf(err))
	}
}

func TestClient_at_the_same_time(t *testing.T) {
	t.Parallel()
	server, connections := counted(t, hello)
	const workers, rounds = 8, 20
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				res, err := outbound.Client(outbound.Network{AllowPrivate: true}, 0).Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := outbound.Read(res); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := connections.Load(); n > 2*workers {
		t.Errorf("%d connections for %d workers: they are not kept", n, workers)
	}
}

func TestClient_does_not_follow_redirects(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	server, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			followed.Store(true)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	res, err := outbound.Client(outbound.Network{AllowPrivate: true}, 0).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = outbound.Read(res)
	var status *outbound.StatusError
	if !errors.As(err, &status) || status.Status != http.StatusFound || followed.Load() {
		t.Errorf("error %v, followed %v", err, followed.Load())
	}
}

func TestClient_has_one_deadline(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no end": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		server, _ := counted(t, handle)
		res, err := outbound.Client(outbound.Network{AllowPrivate: true}, 50*time.Millisecond).Get(server.URL)
		if err == nil {
			_, err = outbound.Read(res)
		}
		if err == nil || schema.KindOf(err) != schema.Temporary {
			t.Errorf("%s: error %v (%v)", name, err, schema.KindOf(err))
		}
	}
}

func TestClient_reads_headers_up_to_a_limit(t *testing.T) {
	t.Parallel()
	server, _ := counted(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 70<<10)) })
	if _, err := outbound.Client(outbound.Network{AllowPrivate: true}, 0).Get(server.URL); err == nil || schema.KindOf(err) != schema.Temporary {
		t.Errorf("error %v (%v)", err, schema.KindOf(err))
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", outbound.MaxBody)
	answers := map[string]func(w http.ResponseWriter){
		"/ok":      func(w http.ResponseWriter) { _, _ = io.WriteString(w, "fine") },
		"/full":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) },
		"/long":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, long+"x") },
		"/broken":  func(w http.ResponseWriter) { w.Header().Set("Content-Length", "10"); _, _ = io.WriteString(w, "fi") },
		"/refused": func(w http.ResponseWriter) { w.WriteHeader(422); _, _ = io.WriteString(w, "no such member") },
		"/busy":    func(w http.ResponseWriter) { w.Header().Set("Retry-After", "7"); w.WriteHeader(503) },
	}
	server, _ := counted(t, func(w http.ResponseWriter, r *http.Request) { answers[r.URL.Path](w) })
	client := outbound.Client(outbound.Network{AllowPrivate: true}, 0)
	for path, want := range map[string]struct {
		body, err string
		kind      schema.ErrorKind
		wait      time.Duration
	}{
		"/ok":      {body: "fine"},
		"/full":    {body: long},
		"/long":    {err: "with more than 1048576 bytes", kind: schema.Permanent},
		"/broken":  {err: "broke off"},
		"/refused": {body: "no such member", err: "answered 422 Unprocessable Entity", kind: schema.Permanent},
		"/busy":    {err: "answered 503 Service Unavailable", wait: 7 * time.Second},
	} {
		res, err := client.Get(server.URL + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := outbound.Read(res)
		wait, _ := schema.RetryAfterOf(err)
		if string(body) != want.body || !strings.Contains(fmt.Sprint(err), want.err) || (err == nil) != (want.err == "") ||
			schema.KindOf(err) != want.kind || wait != want.wait {
			t.Errorf("%s: %d bytes, error %v (%v), wait %v", path, len(body), err, schema.KindOf(err), wait)
		}
	}
}
