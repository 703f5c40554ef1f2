package jetstream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A cutter makes connections that are lost while a batch commits: before the cursor is sent, in the middle of it, or
// behind it, so that the answer never comes. Other answers only come too late.
type cutter struct {
	share float64 // of commits that something happens to

	before, within, behind, late atomic.Int64
}

func (c *cutter) options() []nats.Option {
	return []nats.Option{nats.SetCustomDialer(c), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c    *cutter
	held atomic.Int64 // no answer before this time
}

var errCut = errors.New("the connection was cut")

func (c *cutConn) Write(b []byte) (int, error) {
	at := bytes.Index(b, []byte(headerBatchCommit))
	if at < 0 || rand.Float64() >= c.c.share {
		return c.Conn.Write(b)
	}
	switch rand.IntN(4) {
	case 0:
		c.c.before.Add(1)
		_ = c.Close()
		return 0, errCut
	case 1:
		c.c.within.Add(1)
		n, _ := c.Conn.Write(b[:at+len(headerBatchCommit)/2])
		_ = c.Close()
		return n, errCut
	case 2:
		c.c.behind.Add(1)
		n, err := c.Conn.Write(b)
		_ = c.Close()
		return n, errors.Join(err, errCut)
	default:
		c.c.late.Add(1)
		c.held.Store(time.Now().Add(rand.N(300 * time.Millisecond)).UnixNano())
		return c.Conn.Write(b)
	}
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if wait := time.Until(time.Unix(0, c.held.Load())); wait > 0 && err == nil {
		<-time.After(wait)
	}
	return n, err
}
