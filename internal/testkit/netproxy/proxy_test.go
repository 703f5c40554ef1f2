//go:build unix

package netproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit/netproxy"
)

const patience = time.Minute

// echo answers each line with itself and notes what it got.
type echo struct {
	addr string
	mu   sync.Mutex
	got  strings.Builder
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	e := &echo{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(io.MultiWriter(e, c), c) // noted before it is answered
			}()
		}
	}()
	return e
}

func (e *echo) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got.Write(b)
}

func (e *echo) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got.String()
}

func dial(t *testing.T, p *netproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got[:n], err, want)
	}
}

func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	rest, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %q, %v; want a reset", rest, err)
	}
}

func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
}

func TestProxy_passes_and_ends(t *testing.T) {
	t.Parallel()
	p := netproxy.Start(t, "tcp://"+startEcho(t).addr)
	c := dial(t, p)
	say(t, c, "hello")
	hear(t, c, "hello")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("the connection ended with %q, %v", rest, err)
	}
}

func TestProxy_cut_and_refuse(t *testing.T) {
	t.Parallel()
	p := netproxy.Start(t, startEcho(t).addr)
	c := dial(t, p)
	say(t, c, "a")
	hear(t, c, "a")
	p.Cut()
	isReset(t, c)
	c = dial(t, p)
	say(t, c, "b")
	hear(t, c, "b")
	p.Refuse()
	isReset(t, c)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	p.Heal()
	c = dial(t, p)
	say(t, c, "c")
	hear(t, c, "c")
	if n := p.Taken(); n != 3 {
		t.Errorf("%d connections were taken", n)
	}
}

func TestProxy_half_open(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := netproxy.Start(t, server.addr)
	c := dial(t, p)
	p.Freeze(netproxy.Down)
	say(t, c, "late")
	silent(t, c)
	if got := server.text(); got != "late" {
		t.Errorf("the server got %q", got)
	}
	p.Heal()
	hear(t, c, "late")

	p.Swallow(netproxy.Up)
	say(t, c, "lost")
	silent(t, c)
	other := dial(t, p) // is taken
	silent(t, other)
	p.Heal()
	isReset(t, c)
	say(t, other, "again")
	hear(t, other, "again")
	if got := server.text(); got != "lateagain" {
		t.Errorf("the server got %q", got)
	}
}

// What a freeze holds is lost once it is swallowed, however short that is.
func TestProxy_swallows_what_is_held(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := netproxy.Start(t, server.addr)
	for range 10 {
		c := dial(t, p)
		say(t, c, "a")
		hear(t, c, "a")
		p.Freeze(netproxy.Up)
		say(t, c, "lost")
		silent(t, c)
		p.Swallow(netproxy.Up)
		p.Heal()
		isReset(t, c)
	}
	if got := server.text(); strings.Contains(got, "lost") {
		t.Errorf("the server got %q", got)
	}
}

func TestProxy_slow(t *testing.T) {
	t.Parallel()
	p := netproxy.Start(t, startEcho(t).addr)
	c := dial(t, p)
	began := time.Now()
	p.Slow(netproxy.Pace{Latency: 50 * time.Millisecond, Jitter: 10 * time.Millisecond})
	say(t, c, "a")
	hear(t, c, "a")
	if d := time.Since(began); d < 100*time.Millisecond {
		t.Errorf("there and back took %v", d)
	}
	began = time.Now()
	p.Slow(netproxy.Pace{BytesPerSecond: 100_000})
	text := strings.Repeat("x", 20_000)
	go say(t, c, text)
	hear(t, c, text)
	if d := time.Since(began); d < 200*time.Millisecond {
		t.Errorf("%d bytes took %v", len(text), d)
	}
}

func TestProxy_trips(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arm  func(p *netproxy.Proxy) *netproxy.Trip
		says []string
		back string // what comes back before the reset
		got  string // what the server may get at most
	}{
		"after bytes":  {func(p *netproxy.Proxy) *netproxy.Trip { return p.ResetAfter(netproxy.Down, 3) }, []string{"abcde"}, "abc", "abcde"},
		"on a pattern": {func(p *netproxy.Proxy) *netproxy.Trip { return p.ResetOn(netproxy.Up, "COMMIT") }, []string{"a", "bCOM", "MIT"}, "ab", "abCOM"},
		"answer":       {func(p *netproxy.Proxy) *netproxy.Trip { return p.ResetAnswer("MIT", "") }, []string{"a", "COM", "MIT"}, "aCOM", "aCOMMIT"},
		"that answer":  {func(p *netproxy.Proxy) *netproxy.Trip { return p.ResetAnswer("MIT", "ok") }, []string{"MIT", "more", "ok"}, "MITmore", "MITmoreok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startEcho(t)
			p := netproxy.Start(t, server.addr)
			trip := test.arm(p)
			c := dial(t, p)
			for i, s := range test.says {
				say(t, c, s)
				if before := strings.Join(test.says[:i+1], ""); strings.HasPrefix(test.back, before) {
					hear(t, c, s)
				}
			}
			isReset(t, c)
			<-trip.Fired()
			if got := server.text(); !strings.HasPrefix(test.got, got) || strings.HasPrefix(name, "answer") && got != test.got {
				t.Errorf("the server got %q, want %q", got, test.got)
			}
			c = dial(t, p)
			say(t, c, "COMMIT ok")
			hear(t, c, "COMMIT ok")
		})
	}
}
