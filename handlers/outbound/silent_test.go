package outbound

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hole passes bytes on until it is told to swallow those of the connections it has.
type hole struct {
	net.Listener
	swallowed atomic.Int64 // connections before this one are silent
	count     atomic.Int64
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	h := &hole{Listener: ln}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			number := h.count.Add(1)
			out, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				in.Close()
				return
			}
			go h.pass(number, in, out)
			go h.pass(number, out, in)
		}
	}()
	return h
}

func (h *hole) pass(number int64, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if number > h.swallowed.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// A connection that a firewall has forgotten swallows what is sent. With HTTP/2 all requests of a host share it.
func TestTransport_gives_up_a_silent_connection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	h := newHole(t, strings.TrimPrefix(server.URL, "https://"))
	transport := newTransport(Network{AllowPrivate: true, TLS: &tls.Config{InsecureSkipVerify: true}})
	if c := transport.HTTP2; c == nil || c.SendPingTimeout <= 0 || c.PingTimeout <= 0 || c.SendPingTimeout+c.PingTimeout > DefaultTimeout {
		t.Fatalf("HTTP/2 settings %+v", c)
	}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	get := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.Addr().String(), nil)
		if err != nil {
			return err
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "HTTP/2.0" {
			t.Errorf("answer %q, error %v", body, err)
		}
		return nil
	}
	if err := get(time.Minute); err != nil {
		t.Fatal(err)
	}
	h.swallowed.Store(h.count.Load())
	if err := get(30 * time.Second); err == nil {
		t.Fatal("a request over the silent connection was answered")
	} else if ctxErr := context.DeadlineExceeded.Error(); strings.Contains(err.Error(), ctxErr) {
		t.Errorf("it took the request's whole time: %v", err)
	}
	if err := get(30 * time.Second); err != nil || h.count.Load() != 2 {
		t.Errorf("the next request: error %v, %d connections", err, h.count.Load())
	}
}
