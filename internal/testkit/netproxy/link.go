//go:build unix

package netproxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A link is one connection through the proxy.
type link struct {
	p              *Proxy
	client, server *net.TCPConn
	once           sync.Once
	done           chan struct{} // closed when it is over

	// Under p.mu.
	lost bool           // something was swallowed
	held Direction      // where something waits for the flow to go on
	seen map[*Trip]bool // trips whose request has passed
}

// chunk is what was read at once, or the end.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

const (
	chunkSize  = 16 << 10
	queuedMost = 256 // chunks on their way
)

// reset ends the link as a broken network does.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.done)
		for _, c := range []*net.TCPConn{l.client, l.server} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	})
}

func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(l.client, l.server, Up) })
	wg.Go(func() { l.pump(l.server, l.client, Down) })
	wg.Wait()
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// pump moves bytes one way until that side has ended.
func (l *link) pump(from, to *net.TCPConn, d Direction) {
	var reader sync.WaitGroup
	defer reader.Wait()
	queue := make(chan chunk, queuedMost)
	reader.Go(func() { l.read(from, queue) })
	var tail []byte // of what has passed, for patterns that begin in one chunk and end in another
	for {
		var c chunk
		select {
		case c = <-queue:
		case <-l.done:
			return
		}
		pass, ok := l.await(c, d)
		switch {
		case !ok:
			return
		case !pass:
			continue
		case errors.Is(c.err, io.EOF):
			_ = to.CloseWrite()
			return
		case c.err != nil:
			l.reset()
			return
		}
		data, fired := l.p.check(l, d, tail, c.data)
		if len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				l.reset()
			}
		}
		if fired != nil {
			l.reset()
			close(fired.fired)
		}
		tail = append(tail, data...)
		tail = tail[max(0, len(tail)-longestPattern):]
	}
}

func (l *link) read(from io.Reader, queue chan<- chunk) {
	for {
		data := make([]byte, chunkSize)
		n, err := from.Read(data)
		l.p.mu.Lock()
		pace := l.p.pace
		l.p.mu.Unlock()
		due := time.Now().Add(pace.Latency)
		if pace.Jitter > 0 {
			due = due.Add(rand.N(pace.Jitter))
		}
		for _, c := range []chunk{{data: data[:n], due: due}, {due: due, err: err}} {
			if len(c.data) == 0 && c.err == nil {
				continue
			}
			select {
			case queue <- c:
			case <-l.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await waits until c may go on; pass is false if it is swallowed, ok if the link is over.
func (l *link) await(c chunk, d Direction) (pass, ok bool) {
	if !l.sleep(time.Until(c.due)) {
		return false, false
	}
	p := l.p
	for {
		p.mu.Lock()
		frozen, swallow, rate, changed := p.frozen&d != 0, p.swallow&d != 0, p.pace.BytesPerSecond, p.changed
		if swallow {
			l.lost = true
		}
		if l.held &^= d; frozen && !swallow {
			l.held |= d
		}
		p.mu.Unlock()
		switch {
		case swallow && c.err == nil:
			return false, true
		case frozen || swallow: // the end waits, too: it is not told
		case rate > 0 && len(c.data) > 0:
			return true, l.sleep(time.Duration(len(c.data)) * time.Second / time.Duration(rate))
		default:
			return true, true
		}
		select {
		case <-changed:
		case <-l.done:
			return false, false
		}
	}
}

// sleep reports whether the link is still there.
func (l *link) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}
