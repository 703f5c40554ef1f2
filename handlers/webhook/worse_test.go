package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// Whatever does not come, the attempt ends at its deadline: the name's address, the handshake, or the taking of the body.
func TestHandle_has_one_deadline_before_the_answer(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // a name server that never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
	}}
	deaf := newDeafServer(t)
	for name, cfg := range map[string]webhook.Config{
		"name":      {URL: text("http://hook.test/"), Network: &outbound.Network{Resolver: resolver, AllowPrivate: true}},
		"handshake": {URL: text("https://" + deaf)},
		"body":      {URL: text("http://" + deaf)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Timeout = 300 * time.Millisecond
			start := time.Now()
			err := newHook(t, cfg).Handle(t.Context(), schema.NewJob("t", "a", bytes.Repeat([]byte("x"), 16<<20)))
			wantKind(t, err, schema.Temporary)
			if took := time.Since(start); took < 200*time.Millisecond || took > 15*time.Second {
				t.Errorf("took %v: %v", took, err)
			}
		})
	}
}

// newDeafServer accepts connections and reads nothing from them.
func newDeafServer(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	}()
	return ln.Addr().String()
}

// A name may have a hundred addresses inside and one outside: none of those inside is connected to, and the one outside
// is, wherever it stands.
func TestHandle_of_a_name_with_many_addresses(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	names, resolver := newNameServer(t)
	hook := newHook(t, webhook.Config{URL: text("http://hook.test" + port), Network: &outbound.Network{
		Resolver: resolver, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}})
	inside := []string{"10.0.0.1", "169.254.169.254", "192.168.0.1", "::ffff:10.0.0.1", "fd00:ec2::23", "64:ff9b::a9fe:a9fe", "fe80::1", "127.0.0.2", "100.100.100.200"}
	for _, addresses := range [][]string{append([]string{"127.0.0.1"}, inside...), append(inside[:len(inside):len(inside)], "127.0.0.1")} {
		names.set(addresses...)
		if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
			t.Errorf("%v: %v", addresses, err)
		}
	}
	// While the one outside is down, it is only that.
	closed := must(net.Listen("tcp", "127.0.0.1:0"))
	closed.Close()
	names.set(append(inside[:len(inside):len(inside)], "127.0.0.1")...)
	down := newHook(t, webhook.Config{URL: text(fmt.Sprintf("http://hook.test:%d", closed.Addr().(*net.TCPAddr).Port)), Network: &outbound.Network{
		Resolver: resolver, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}})
	wantKind(t, down.Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Temporary)
	names.set(inside...)
	fresh := newHook(t, webhook.Config{URL: text("http://hook.test" + port), Network: &outbound.Network{Resolver: resolver}})
	wantKind(t, fresh.Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Permanent)
	if n := len(server.got()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A receiver that sends the request's secrets back, as a header, as a status or after the answer, does not get them into
// errors or logs.
func TestHandle_of_a_receiver_that_sends_secrets_back(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, answer := range []string{
		"HTTP/1.1 200 SECRET123\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 SECRET123\r\nX: SECRET123\r\nContent-Length: 9\r\n\r\nSECRET123", "SECRET123\r\n\r\n",
		"HTTP/1.1 200 OK\r\nSECRET123\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://SECRET123/SECRET123\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 429 No\r\nRetry-After: SECRET123\r\nContent-Length: 0\r\n\r\n",
	} {
		server := newRawServer(t, func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, answer) })
		err := newHook(t, webhook.Config{
			URL: text(server.url + "/SECRET123"), Headers: map[string]configgroup.Secret{"Authorization": text("SECRET123")}, Logger: logger,
		}).Handle(t.Context(), schema.NewJob("t", "a", nil))
		if strings.Contains(fmt.Sprintf("%v %+v", err, err), "SECRET123") {
			t.Errorf("%q: error %v", answer, err)
		}
	}
	if strings.Contains(logs.String(), "SECRET123") || strings.Count(logs.String(), "webhook attempt") != 6 {
		t.Errorf("logs %s", &logs)
	}
}

// Endpoints that hang on one HTTP/2 connection do not hold up another path of the same host.
func TestHandle_over_a_shared_HTTP2_connection(t *testing.T) {
	t.Parallel()
	const hanging = 40
	var entered atomic.Int64
	release := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			entered.Add(1)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	network := &outbound.Network{AllowPrivate: true, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig}
	hook := func(path string) func() error {
		h := newHook(t, webhook.Config{URL: text(server.URL + path), Network: network, Timeout: time.Minute})
		return func() error { return h.Handle(t.Context(), schema.NewJob("t", "a", []byte("x"))) }
	}
	hang, healthy := hook("/hang"), hook("/healthy")
	var wg sync.WaitGroup
	for range hanging {
		wg.Go(func() {
			if err := hang(); err != nil {
				t.Error(err)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); entered.Load() < hanging; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests hang", entered.Load())
		}
	}
	for range 20 {
		if err := healthy(); err != nil {
			t.Error(err)
		}
	}
	close(release)
	wg.Wait()
}

// An answer that comes before the request was read, as of a proxy that refuses a large body, is the answer.
func TestHandle_of_an_early_answer(t *testing.T) {
	t.Parallel()
	server := newRawServerUnread(t, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	err := newHook(t, webhook.Config{URL: text(server)}).Handle(t.Context(), schema.NewJob("t", "a", bytes.Repeat([]byte("x"), 1<<20)))
	wantKind(t, err, schema.Permanent)
}

// newRawServerUnread answers after the headers, and reads the body only then.
func newRawServerUnread(t *testing.T, answer string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, r)
	}()
	return "http://" + ln.Addr().String()
}
