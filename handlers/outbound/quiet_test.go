package outbound_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/outbound"
)

// echo answers each request with text in which %s is the token of the request.
func echo(t *testing.T, text string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, strings.ReplaceAll(text, "%s", req.Header.Get("Authorization")))
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// A server that sends back what it got must not get it into errors: they end up in logs and dead letters.
func TestTransport_does_not_repeat_what_a_server_sends(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\n"
	for name, text := range map[string]string{
		"no HTTP":     "%s\r\n\r\n",
		"a version":   "HTTP/%s 200 OK\r\n\r\n",
		"a status":    "HTTP/1.1 %s OK\r\n\r\n",
		"a header":    head + "%s\r\n\r\n",
		"a length":    head + "Content-Length: %s\r\n\r\n",
		"an encoding": head + "Transfer-Encoding: %s\r\n\r\n",
		"a chunk":     head + "Transfer-Encoding: chunked\r\n\r\n%s\r\n",
		"a trailer":   head + "Transfer-Encoding: chunked\r\n\r\n0\r\n%s\r\n\r\n",
		"trailer key": head + "Trailer: Content-Length, %s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, echo(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "SECRET123")
		res, err := outbound.Client(outbound.Network{AllowPrivate: true}, 0).Do(req)
		if err == nil {
			_, err = outbound.Read(res)
		}
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "SECRET123") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A small answer cannot become a large one, whether compression was asked for or not.
func TestClient_does_not_unpack(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(make([]byte, 4*outbound.MaxBody))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	server, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Values("Accept-Encoding"); len(got) > 0 {
			t.Errorf("asked for %q", got)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	res, err := outbound.Client(outbound.Network{AllowPrivate: true}, 0).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := outbound.Read(res); err != nil || !bytes.Equal(body, packed.Bytes()) {
		t.Errorf("%d bytes of %d packed ones, error %v", len(body), packed.Len(), err)
	}
}
