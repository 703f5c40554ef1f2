//go:build unix

package netproxy

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Direction is one way through the proxy, or both.
type Direction int

// The directions.
const (
	Up   Direction = 1 << iota // from clients to the server
	Down                       // from the server to clients
	Both = Up | Down
)

// Pace slows a network down. The zero value does not.
type Pace struct {
	Latency        time.Duration // each way
	Jitter         time.Duration // up to so much on top of it, at random; the order of the bytes stays
	BytesPerSecond int           // of each connection, each way; 0 means no limit
}

// A Proxy passes on bytes between clients and a server, as well as it is told to. It is safe for concurrent use.
type Proxy struct {
	addr string
	hold int // a socket that is bound to addr and does not listen: nobody else gets the port
	wg   sync.WaitGroup

	mu      sync.Mutex
	target  string
	l       net.Listener // nil while connections are refused
	refuse  bool
	frozen  Direction
	swallow Direction
	pace    Pace
	changed chan struct{} // closed when one of the above changes
	trips   []*Trip
	links   map[*link]struct{}
	taken   int
	ended   bool
}

// Start starts a proxy before a server, given as host:port or as a URL. It ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	addr, hold, err := reserve()
	if err != nil {
		t.Fatalf("reserve a port for the proxy: %v", err)
	}
	p := &Proxy{addr: addr, hold: hold, changed: make(chan struct{}), links: make(map[*link]struct{})}
	p.Retarget(target)
	t.Cleanup(p.end)
	if err := p.listen(); err != nil {
		t.Fatalf("listen: %v", err)
	}
	return p
}

// Addr is where clients connect, as host:port. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// NATS is Addr as the URL of a NATS server.
func (p *Proxy) NATS() string { return "nats://" + p.addr }

// Taken is how many connections clients have made so far.
func (p *Proxy) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Open is how many connections there are.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Retarget makes new connections go to another server.
func (p *Proxy) Retarget(target string) {
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		target = u.Host
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut resets all connections. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse resets all connections and refuses new ones.
func (p *Proxy) Refuse() {
	p.change(func() {
		p.refuse = true
		if p.l != nil {
			_ = p.l.Close()
			p.l = nil
		}
		for l := range p.links {
			l.reset()
		}
	})
}

// Freeze stops the flow of bytes and closes nothing: connections stay open, new ones are taken, and what is sent waits
// until the proxy is healed. Nobody learns that the other side has gone.
func (p *Proxy) Freeze(d Direction) { p.change(func() { p.frozen |= d }) }

// Swallow is Freeze that drops what is sent, and what a freeze holds, so that senders are never held up. Healing resets the
// connections that have lost something.
func (p *Proxy) Swallow(d Direction) {
	p.change(func() {
		p.swallow |= d
		for l := range p.links {
			l.lost = l.lost || l.held&d != 0 // also if it is healed before the link comes to know
		}
	})
}

// Slow sets the pace of all connections.
func (p *Proxy) Slow(pace Pace) { p.change(func() { p.pace = pace }) }

// Heal makes the network good again. Trips that have not fired are gone.
func (p *Proxy) Heal() {
	p.change(func() {
		p.frozen, p.swallow, p.pace, p.trips, p.refuse = 0, 0, Pace{}, nil, false
		for l := range p.links {
			if l.lost {
				l.reset()
			}
		}
	})
	if err := p.listen(); err != nil {
		panic(err) // the port is ours
	}
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.l != nil || p.ended {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.l = l
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client.(*net.TCPConn)) })
		}
	})
	return nil
}

func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	p.taken++
	target := p.target
	p.mu.Unlock()
	conn, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{p: p, client: client, server: conn.(*net.TCPConn), done: make(chan struct{}), seen: make(map[*Trip]bool)}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.refuse || p.ended {
		l.reset()
	}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.Refuse()
	p.wg.Wait()
	release(p.hold)
}
