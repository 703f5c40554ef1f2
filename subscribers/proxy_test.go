package subscribers_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// proxy passes bytes on between clients and a server until it is frozen: then connections stay open and nothing moves.
type proxy struct {
	l net.Listener

	mu     sync.Mutex
	thawed chan struct{} // closed while it is not frozen
}

func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, thawed: make(chan struct{})}
	close(p.thawed)
	var wg sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() {
		p.freeze(false)
		l.Close()
		close(done)
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				client.Close()
				continue
			}
			wg.Go(func() { p.pass(client, server) })
			wg.Go(func() { p.pass(server, client) })
			wg.Go(func() {
				<-done
				client.Close()
				server.Close()
			})
		}
	})
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		thawed := p.thawed
		p.mu.Unlock()
		<-thawed
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) freeze(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		if frozen {
			p.thawed = make(chan struct{})
		}
	default:
		if !frozen {
			close(p.thawed)
		}
	}
}

func (p *proxy) conn(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+p.l.Addr().String(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
