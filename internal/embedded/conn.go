package embedded

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	dialTimeout   = 5 * time.Second
	reconnectWait = 100 * time.Millisecond
)

// connect opens a connection that asks where the server is each time it dials, for a server that comes back comes back
// on another port with another token. It buffers nothing while the server is away: what is not sent fails at once.
func connect(where func() (address, error), log *slog.Logger) (*nats.Conn, error) {
	a, err := where()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	conn, err := nats.Connect("nats://"+a.Address,
		nats.Name("millbridge"),
		nats.SetCustomDialer(dialer(where)),
		nats.TokenHandler(func() string {
			if now, err := where(); err == nil {
				return now.Token
			}
			return a.Token
		}),
		nats.IgnoreDiscoveredServers(),
		nats.IgnoreAuthErrorAbort(), // while one server follows another, address and token may not fit for a moment
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS server is away", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("NATS server is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS client", "error", err) }),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

// dialer dials where the server is now.
type dialer func() (address, error)

// Dial implements [nats.CustomDialer]; the address it is given is where the server was once.
func (d dialer) Dial(network, _ string) (net.Conn, error) {
	a, err := d()
	if err != nil {
		return nil, err
	}
	return net.DialTimeout(network, a.Address, dialTimeout)
}
