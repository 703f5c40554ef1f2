package webhook_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// rawServer answers each connection with serve, without any HTTP library, and counts connections.
type rawServer struct {
	url   string
	count atomic.Int64
}

func newRawServer(t *testing.T, serve func(conn net.Conn, head string)) *rawServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &rawServer{url: "http://" + ln.Addr().String()}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.count.Add(1)
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a client that waits for ever fails its test
				serve(conn, readRequest(conn))
			}()
		}
	}()
	return s
}

// readRequest reads one request with its body and returns its head.
func readRequest(conn net.Conn) string {
	r := bufio.NewReader(conn)
	var head strings.Builder
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return head.String()
		}
		head.WriteString(line)
		_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
		if line == "\r\n" {
			_, _ = io.CopyN(io.Discard, r, int64(length))
			return head.String()
		}
	}
}

// drip writes text and then one byte every few milliseconds until the other side has gone.
func drip(conn net.Conn, text, more string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	_, err := io.WriteString(conn, text)
	for err == nil {
		<-tick.C
		_, err = io.WriteString(conn, more)
	}
}

// reset ends the connection with RST, as a crashed process or a middlebox does.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func TestHandle_has_one_deadline(t *testing.T) {
	t.Parallel()
	hang := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	for name, serve := range map[string]func(net.Conn, string){
		"no answer":     func(conn net.Conn, _ string) { hang(conn) },
		"headers drip":  func(conn net.Conn, _ string) { drip(conn, "HTTP/1.1 200 OK\r\nX: ", "x") },
		"headers go on": func(conn net.Conn, _ string) { drip(conn, "HTTP/1.1 200 OK\r\n", "X: 1\r\n") },
		"early hints":   func(conn net.Conn, _ string) { drip(conn, "", "HTTP/1.1 102 Processing\r\n\r\n") },
		"body drips":    func(conn net.Conn, _ string) { drip(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "x") },
		"chunks drip": func(conn net.Conn, _ string) {
			drip(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n")
		},
		"error body drips": func(conn net.Conn, _ string) { drip(conn, "HTTP/1.1 500 No\r\n\r\n", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newRawServer(t, serve)
			start := time.Now()
			err := newHook(t, webhook.Config{URL: text(server.url), Timeout: 300 * time.Millisecond}).Handle(t.Context(), schema.NewJob("t", "a", []byte("x")))
			wantKind(t, err, schema.Temporary)
			if took := time.Since(start); took < 50*time.Millisecond && name != "early hints" || took > 15*time.Second {
				t.Errorf("took %v: %v", took, err)
			}
			if n := server.count.Load(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// A receiver that takes the connection over must not get hold of the worker.
func TestHandle_of_a_switched_protocol(t *testing.T) {
	t.Parallel()
	server := newRawServer(t, func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	// Running into the deadline would be temporary.
	err := newHook(t, webhook.Config{URL: text(server.url), Timeout: time.Minute}).Handle(t.Context(), schema.NewJob("t", "a", []byte("x")))
	wantKind(t, err, schema.Permanent)
}

func TestHandle_reads_no_more_than_it_must(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	endless := func(w io.Writer) {
		block := make([]byte, 32<<10)
		for {
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, _ *http.Request) { endless(w) },
	} {
		server := newReceiver(t, answer)
		if err := newHook(t, webhook.Config{URL: text(server.URL), MaxResponseBytes: 1000, Timeout: time.Minute}).Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		server.Close() // waits for the handler
	}
	if n := sent.Load(); n > 32<<20 {
		t.Errorf("%d bytes of the endless answer were taken", n)
	}
	large := newRawServer(t, func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\nContent-Length: 0\r\n\r\n")
	})
	wantKind(t, newHook(t, webhook.Config{URL: text(large.url)}).Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Temporary)
}

// What broke off may not have happened: it is tried again, and only by the policy, never within the attempt.
func TestHandle_when_the_connection_breaks(t *testing.T) {
	t.Parallel()
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for name, answer := range map[string]string{
		"after the request":  "",
		"in the status":      "HTTP/1.1 20",
		"in the headers":     "HTTP/1.1 200 OK\r\nContent-Le",
		"in the body of 200": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"in a chunk of 200":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nhalf",
		"no HTTP":            "SSH-2.0-OpenSSH_9.6\r\n",
	} {
		var requests atomic.Int64
		server := newRawServer(t, func(conn net.Conn, _ string) {
			if requests.Add(1) == 1 { // the next request comes on the same connection
				_, _ = io.WriteString(conn, ok)
				if readRequest(conn) == "" {
					return
				}
				requests.Add(1)
			}
			_, _ = io.WriteString(conn, answer)
			reset(conn)
		})
		hook := newHook(t, webhook.Config{URL: text(server.url)})
		if err := hook.Handle(t.Context(), schema.NewJob("t", "a", []byte("x"))); err != nil {
			t.Fatalf("%s: the first request: %v", name, err)
		}
		wantKind(t, hook.Handle(t.Context(), schema.NewJob("t", "a", []byte("x"))), schema.Temporary)
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: %d requests, want 2", name, n)
		}
	}
}

func TestHandle_when_nobody_listens(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	wantKind(t, newHook(t, webhook.Config{URL: text("http://" + ln.Addr().String())}).Handle(t.Context(), schema.NewJob("t", "a", nil)), schema.Temporary)
}
