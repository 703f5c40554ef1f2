package webhook

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// Defaults of a [Config].
const (
	DefaultTimeout       = 20 * time.Second
	DefaultMaxResponse   = 64 << 10
	DefaultRetryAfterMax = time.Hour
)

// A Config describes one endpoint. Only URL is required.
type Config struct {
	// URL is where messages are posted: http or https, without user information and fragment.
	URL string
	// Secrets sign the requests, each "whsec_" and the base64 of 24 to 64 random bytes. During a rotation both the old
	// and the new one are here and every request has two signatures. Without any, requests are not signed.
	Secrets []string
	// Timeout is what one attempt may take, from the look-up of the name to the last byte of the answer.
	Timeout time.Duration
	// MaxResponse is how many bytes of an answer's body are read.
	MaxResponse int64
	// RetryAfterMax caps the wait that a receiver may ask for.
	RetryAfterMax time.Duration
	// Headers are added to each request, for example Authorization. Those that the request is made of are refused.
	Headers map[string]string
	// Network says what may be reached, and how; connections are shared with all targets of the same rules.
	outbound.Network
	// Logger gets one line per attempt at level Debug; nil logs nothing.
	Logger *slog.Logger
	// Now is the clock of timestamps and of Retry-After dates; nil is [time.Now].
	Now func() time.Time
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	_, errs := c.endpoint()
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %v, must not be negative", c.Timeout))
	}
	if c.MaxResponse < 0 {
		errs = append(errs, fmt.Errorf("max response is %d, must not be negative", c.MaxResponse))
	}
	if c.RetryAfterMax < 0 {
		errs = append(errs, fmt.Errorf("retry after max is %v, must not be negative", c.RetryAfterMax))
	}
	for i, s := range c.Secrets {
		if _, err := parseSecret(s); err != nil {
			errs = append(errs, fmt.Errorf("secret %d: %w", i+1, err))
		}
	}
	seen := make(map[string]bool, len(c.Headers))
	for name, value := range c.Headers {
		if err := checkHeader(name, value); err != nil {
			errs = append(errs, err)
		} else if key := http.CanonicalHeaderKey(name); seen[key] {
			errs = append(errs, fmt.Errorf("header %s is there twice", key))
		} else {
			seen[key] = true
		}
	}
	return errors.Join(errs...)
}

// endpoint reads the URL. Its errors do not repeat it: path and query often hold a token.
func (c Config) endpoint() (*url.URL, []error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Opaque != "" || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, []error{errors.New("url is not an http or https address")}
	}
	var errs []error
	if u.User != nil {
		errs = append(errs, errors.New("url has user information; use a header"))
	}
	if u.Fragment != "" {
		errs = append(errs, errors.New("url has a fragment"))
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		if err := c.Check(addr); err != nil {
			errs = append(errs, fmt.Errorf("url: %w", err))
		}
	case host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`:/\%[]@`, r) }):
		errs = append(errs, errors.New("url has no host in ASCII"))
	case looksNumeric(host):
		errs = append(errs, fmt.Errorf("url: host %q is an address in a form that is not accepted", schema.OneLine(host)))
	}
	return u, errs
}

// looksNumeric reports whether some resolvers would read a host name as an IPv4 address, as 2130706433, 127.1 or 0x7f.1.
func looksNumeric(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(last, digits) == ""
}

// checkHeader refuses what cannot be a header and what the request itself is made of.
func checkHeader(name, value string) error {
	low := strings.ToLower(name)
	if !schema.IsHeaderName(name) {
		return fmt.Errorf("header %q: not a header's name", schema.OneLine(name))
	}
	switch low {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"expect", "accept-encoding", "idempotency-key", schema.HeaderTraceParent, schema.HeaderTraceState:
		return fmt.Errorf("header %s is not free", name)
	}
	if strings.HasPrefix(low, "ce-") || strings.HasPrefix(low, "webhook-") || strings.HasPrefix(low, "proxy-") {
		return fmt.Errorf("header %s is not free", name)
	}
	if !isHeaderValue(value) {
		return fmt.Errorf("header %s: its value cannot be sent", name)
	}
	return nil
}

func isHeaderValue(v string) bool {
	return v == strings.Trim(v, " \t") && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f })
}

// String leaves out what is secret.
func (c Config) String() string {
	host := "?"
	if u, err := url.Parse(c.URL); err == nil && u.Host != "" {
		host = u.Scheme + "://" + u.Host
	}
	return fmt.Sprintf("webhook %s (%d secrets, %d headers)", host, len(c.Secrets), len(c.Headers))
}

// Format writes String whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
