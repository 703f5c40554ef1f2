package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// maxURL is how long a URL may be; RFC 9110, section 4.1, asks everybody to take 8000 bytes at least.
const maxURL = 8000

// endpoint reads the URL. Its errors do not repeat it: path and query often hold a token.
func (c Config) endpoint() (*url.URL, []error) {
	text := c.URL.Reveal()
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, []error{errors.New("url: is not an http or https address")}
	}
	var errs []error
	if len(text) > maxURL {
		errs = append(errs, fmt.Errorf("url: is longer than %d bytes", maxURL))
	}
	if u.User != nil {
		errs = append(errs, errors.New("url: has user information; use a header"))
	}
	if u.Fragment != "" {
		errs = append(errs, errors.New("url: has a fragment"))
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		if err := c.checkAddress(addr); err != nil {
			errs = append(errs, fmt.Errorf("url: %w", err))
		}
	case host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`:/\%[]@`, r) }):
		errs = append(errs, errors.New("url: has no host in ASCII"))
	case looksNumeric(host):
		errs = append(errs, fmt.Errorf("url: host %q is an address in a form that is not accepted", schema.OneLine(host)))
	}
	return u, errs
}

// checkAddress reports an address that may not be reached. Names are checked when they are dialled.
func (c Config) checkAddress(addr netip.Addr) error {
	network := c.Network
	if network == nil {
		n, err := outbound.Settings{AllowPrivate: c.AllowPrivate, AllowedNetworks: c.AllowedNetworks}.Network()
		if err != nil {
			return nil // reported with the key it belongs to
		}
		network = &n
	}
	return network.Check(addr)
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

// hostOf shows of a URL what is not secret.
func hostOf(u *url.URL) string {
	text := u.Scheme + "://" + u.Host
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		text += "/***"
	}
	return text
}
