package subscribers_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/testkit/netproxy"
)

// through connects through a proxy.
func through(t *testing.T, p *netproxy.Proxy) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(p.NATS(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
