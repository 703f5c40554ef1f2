package outbound

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultTimeout is what one request may take unless [Client] is told otherwise.
const DefaultTimeout = 20 * time.Second

// Client returns a client that reaches what n allows, over connections shared with all others of the same rules. The
// timeout covers a whole request, from the look-up of the name to the last byte of the answer; 0 and less mean
// [DefaultTimeout]. Make it once, when the target is made: the client is safe for concurrent use.
func Client(n Network, timeout time.Duration) *http.Client {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &http.Client{
		Transport:     Transport(n),
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// rules is a Network as the key of its pool.
type rules struct {
	private  bool
	networks string
	tls      *tls.Config
	resolver *net.Resolver
}

func (n Network) rules() rules {
	var networks []string
	for _, p := range n.AllowedNetworks {
		networks = append(networks, p.Masked().String())
	}
	slices.Sort(networks)
	return rules{n.AllowPrivate, strings.Join(slices.Compact(networks), " "), n.TLS, n.Resolver}
}

// pools has the process's transports. Sharing is their whole purpose, so this is state of the package: whoever makes a
// target does not know who makes the others.
var pools = struct {
	mu      sync.Mutex
	byRules map[rules]*http.Transport
}{byRules: map[rules]*http.Transport{}}

// Transport returns the process's one pool of connections for the rules n. It sets no limit for a whole request: the
// request's context must end. Most targets want a [Client].
func Transport(n Network) http.RoundTripper {
	key := n.rules()
	pools.mu.Lock()
	defer pools.mu.Unlock()
	t := pools.byRules[key]
	if t == nil {
		t = newTransport(n)
		pools.byRules[key] = t
	}
	return transport{t}
}

func newTransport(n Network) *http.Transport {
	n.AllowedNetworks = slices.Clone(n.AllowedNetworks)
	dialer := &net.Dialer{
		Timeout:        10 * time.Second, // dials may outlive the request they were made for
		KeepAlive:      30 * time.Second,
		Resolver:       n.Resolver,
		ControlContext: n.control,
	}
	t := &http.Transport{ // Proxy is nil: the environment must not decide where requests go
		DialContext:            dialWith(dialer),
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		MaxIdleConns:           256,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small answer cannot become a large one
		// A connection that many requests share and nothing answers on is given up, before more of them wait for it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 10 * time.Second},
	}
	if n.TLS != nil {
		t.TLSClientConfig = n.TLS.Clone()
	}
	return t
}
