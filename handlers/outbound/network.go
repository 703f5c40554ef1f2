package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/millbridge/millbridge/schema"
)

// A Network is a set of rules: which addresses may be reached, and how. Its zero value allows public addresses only.
// TLS and Resolver are the same rule only if they are the same pointer: make them once, and do not change them
// afterwards.
type Network struct {
	// AllowPrivate also allows loopback, private (RFC 1918, unique local) and carrier-grade NAT addresses, but for those
	// where clouds serve their metadata.
	AllowPrivate bool
	// AllowedNetworks are allowed whatever they are.
	AllowedNetworks []netip.Prefix
	// TLS is for own certificate authorities and client certificates; nil is the system's.
	TLS *tls.Config
	// Resolver looks up names; nil is the system's.
	Resolver *net.Resolver
}

// control is called with the actual address, after the look-up and before the connection.
func (n Network) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return schema.WithKind(schema.Permanent, &AddressError{address, "unreadable"})
	}
	if err := n.Check(ap.Addr()); err != nil {
		return err
	}
	if tried, ok := ctx.Value(triedKey{}).(*atomic.Bool); ok {
		tried.Store(true)
	}
	return nil
}

type triedKey struct{}

// dialWith dials with d. Of a name with several addresses, d reports what went wrong with the first one. If that is an
// address that is not allowed, and another one is allowed but down, it is no permanent error: the other one may come back.
func dialWith(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		tried := new(atomic.Bool)
		conn, err := d.DialContext(context.WithValue(ctx, triedKey{}, tried), network, address)
		if _, refused := errors.AsType[*AddressError](err); refused && tried.Load() {
			return nil, fmt.Errorf("dial %s: those of its addresses that are allowed cannot be reached", schema.OneLine(address))
		}
		return conn, err
	}
}

// An AddressError reports an address that may not be reached. As the error of a request it is permanent.
type AddressError struct {
	Address string
	Reason  string // what the address is
}

func (e *AddressError) Error() string {
	text := fmt.Sprintf("address %s is not allowed: %s", schema.OneLine(e.Address), e.Reason)
	if addr, err := netip.ParseAddr(e.Address); err == nil && rangeOf(addr.WithZone("").Unmap()).class == private {
		text += ", which allow_private permits"
	}
	return text
}

// Check returns a permanent [*AddressError] if addr may not be reached.
func (n Network) Check(addr netip.Addr) error {
	plain := addr.WithZone("").Unmap()
	for _, p := range n.AllowedNetworks {
		if p.Contains(plain) || p.Contains(addr.WithZone("")) {
			return nil
		}
	}
	r := rangeOf(plain)
	if r.class == public || r.class == private && n.AllowPrivate {
		return nil
	}
	return schema.WithKind(schema.Permanent, &AddressError{addr.String(), r.what})
}

type class uint8

const (
	never class = iota
	private
	public
)

type addressRange struct {
	prefix netip.Prefix
	class  class
	what   string
}

// ranges are from the IANA registries of special-purpose addresses. The first match counts. What no line names is never
// reached, which leaves out all of IPv6 that is not global unicast.
var ranges = [...]addressRange{
	// Addresses where clouds serve credentials, inside wider ranges.
	{netip.MustParsePrefix("100.100.100.200/32"), never, "cloud metadata"},
	{netip.MustParsePrefix("168.63.129.16/32"), never, "cloud metadata"},
	{netip.MustParsePrefix("fd00:ec2::/32"), never, "cloud metadata"}, // AWS: of instances at ::254, of pods at ::23
	{netip.MustParsePrefix("fd00:42::42/128"), never, "cloud metadata"},
	{netip.MustParsePrefix("fd00:a9fe:a9fe::1/128"), never, "cloud metadata"},
	{netip.MustParsePrefix("fd00:100::100:200/128"), never, "cloud metadata"},
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), never, "cloud metadata"},
	{netip.MustParsePrefix("fd20:ce::254/128"), never, "cloud metadata"},

	{netip.MustParsePrefix("0.0.0.0/8"), never, "this host"},
	{netip.MustParsePrefix("10.0.0.0/8"), private, "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), private, "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), private, "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), never, "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), private, "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), never, "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), never, "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), never, "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), private, "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), never, "benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), never, "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), never, "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), never, "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), never, "reserved"},
	{netip.MustParsePrefix("0.0.0.0/0"), public, "public"},

	{netip.MustParsePrefix("::1/128"), private, "loopback"},
	{netip.MustParsePrefix("fc00::/7"), private, "unique local"},
	{netip.MustParsePrefix("fe80::/10"), never, "link-local"},
	{netip.MustParsePrefix("ff00::/8"), never, "multicast"},
	{netip.MustParsePrefix("64:ff9b::/96"), never, "an IPv4 address in disguise"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), never, "an IPv4 address in disguise"},
	{netip.MustParsePrefix("2001::/23"), never, "protocol assignments"}, // among them Teredo, which carries IPv4 addresses
	{netip.MustParsePrefix("2001:db8::/32"), never, "documentation"},
	{netip.MustParsePrefix("2002::/16"), never, "an IPv4 address in disguise"},
	{netip.MustParsePrefix("3fff::/20"), never, "documentation"},
	{netip.MustParsePrefix("2000::/3"), public, "public"},
}

func rangeOf(addr netip.Addr) addressRange {
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r
		}
	}
	return addressRange{class: never, what: "reserved"}
}
