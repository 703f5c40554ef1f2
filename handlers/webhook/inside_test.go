package webhook_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// nameServer is a DNS server on loopback UDP that gives every name its current addresses.
type nameServer struct {
	mu    sync.Mutex
	addrs []netip.Addr
	asked int
}

func newNameServer(t *testing.T) (*nameServer, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &nameServer{}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := s.answer(buf[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return s, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (s *nameServer) set(addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs = s.addrs[:0]
	for _, a := range addrs {
		s.addrs = append(s.addrs, netip.MustParseAddr(a))
	}
}

// answer returns the reply to one question for A (1) or AAAA (28) records.
func (s *nameServer) answer(q []byte) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	if end += 5; end > len(q) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	kind := binary.BigEndian.Uint16(q[end-4:])
	for _, a := range s.addrs {
		if (kind == 1) != a.Is4() {
			continue
		}
		out[7]++
		raw := a.AsSlice()
		out = append(out, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		out = append(out, raw...)
	}
	return out
}

func TestHandle_checks_the_address_it_connects_to(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	names, resolver := newNameServer(t)
	hook := newHook(t, webhook.Config{URL: text("http://hook.test" + port), Network: &outbound.Network{Resolver: resolver}})
	for _, addr := range []string{
		"127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0", "100.64.0.1", "169.254.169.254", "224.0.0.1", "255.255.255.255",
		"::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::", "fe80::1", "fd00:ec2::254", "64:ff9b::7f00:1", "2002:7f00:1::1", "ff02::1",
	} {
		names.set(addr)
		err := hook.Handle(t.Context(), schema.NewJob("t", "a", []byte("x")))
		wantKind(t, err, schema.Permanent)
		if err != nil && !strings.Contains(err.Error(), "is not allowed") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	names.set()
	wantKind(t, hook.Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Temporary)
	if n := len(server.got()); n != 0 {
		t.Errorf("%d requests reached the inside", n)
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.asked < 18 {
		t.Errorf("the names were asked for %d times only", names.asked)
	}
}

// The check is not of the name's first answer but of each connection.
func TestHandle_when_a_name_changes_its_answer(t *testing.T) {
	t.Parallel()
	outside, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	inside, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", outside.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	got := make(map[string]int)
	serve := func(ln net.Listener, name string) {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got[name]++
			w.Header().Set("Connection", "close")
		})}
		go func() { _ = server.Serve(ln) }()
		t.Cleanup(func() { server.Close() })
	}
	serve(outside, "outside")
	serve(inside, "inside")
	names, resolver := newNameServer(t)
	hook := newHook(t, webhook.Config{
		URL:     text(fmt.Sprintf("http://hook.test:%d/", outside.Addr().(*net.TCPAddr).Port)),
		Network: &outbound.Network{Resolver: resolver, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}},
	})
	for round := range 3 {
		names.set("127.0.0.2")
		if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		names.set("127.0.0.1")
		wantKind(t, hook.Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Permanent)
	}
	names.set("127.0.0.1", "127.0.0.2") // a name with both is served by what is allowed
	if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got["outside"] != 4 || got["inside"] != 0 {
		t.Errorf("requests %v, want 4 outside and none inside", got)
	}
}

// Not parallel: it changes the environment, which is read once per process.
func TestHandle_ignores_proxies_of_the_environment(t *testing.T) {
	proxy, server := newReceiver(t, status(200)), newReceiver(t, status(200))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	names, resolver := newNameServer(t) // loopback addresses are never proxied, names are
	names.set("127.0.0.1")
	hook := newHook(t, webhook.Config{
		URL:     text("http://hook.test" + server.URL[strings.LastIndexByte(server.URL, ':'):]),
		Network: &outbound.Network{Resolver: resolver, AllowPrivate: true},
	})
	if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
		t.Fatal(err)
	}
	if len(proxy.got()) != 0 || len(server.got()) != 1 {
		t.Errorf("%d requests at the proxy, %d at the server", len(proxy.got()), len(server.got()))
	}
}
