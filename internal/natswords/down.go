package natswords

import (
	"errors"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
)

// Down returns nil for a connection that stands. Else it says that NATS cannot be reached and, as far as that is known,
// why. No secret is in it: what goes wrong names hosts, and neither users nor passwords.
func Down(nc *nats.Conn) error {
	if nc.IsConnected() {
		return nil
	}
	why := nc.LastError()
	if d, ok := nc.Opts.CustomDialer.(*dialer); ok && d.last() != nil {
		why = d.last()
	}
	if why == nil {
		return errors.New(Unreachable)
	}
	return &explained{Unreachable, why}
}

// ExplainOn is [Explain] for an error of a question on a connection: if that is down, it says why.
func ExplainOn(nc *nats.Conn, err error) error {
	if down := Down(nc); err != nil && down != nil {
		return &explained{down.Error(), err}
	}
	return Explain(err)
}

// Dialer is the option that lets [Down] know why nobody could be dialed: the client keeps that to itself. It dials as
// the client does.
func Dialer() nats.Option {
	return func(o *nats.Options) error {
		o.CustomDialer = &dialer{options: o}
		return nil
	}
}

// A dialer remembers how the last try has ended.
type dialer struct {
	options *nats.Options // of the one connection; complete when it is used

	mu  sync.Mutex
	err error
}

func (d *dialer) last() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	with := d.options.Dialer
	if with == nil {
		with = &net.Dialer{Timeout: d.options.Timeout}
	}
	conn, err := with.Dial(network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	return conn, err
}
