package outbound

import (
	"net/netip"
	"testing"
)

func TestNetwork_check(t *testing.T) {
	t.Parallel()
	const pub, priv, nev = "public", "private", "never"
	for address, want := range map[string]string{
		"1.1.1.1": pub, "8.8.8.8": pub, "93.184.216.34": pub, "9.255.255.255": pub, "11.0.0.0": pub, "100.63.255.255": pub, "100.128.0.0": pub,
		"172.15.255.255": pub, "172.32.0.0": pub, "192.167.255.255": pub, "223.255.255.255": pub, "168.63.129.15": pub, "::ffff:1.1.1.1": pub,
		"2606:4700::1111": pub, "2001:4860:4860::8888": pub, "2a00:1450::1": pub, "2001:200::1": pub,

		"10.0.0.0": priv, "10.255.255.255": priv, "172.16.0.1": priv, "172.31.255.255": priv, "192.168.0.1": priv, "127.0.0.1": priv, "127.255.255.255": priv,
		"100.64.0.0": priv, "100.127.255.255": priv, "::1": priv, "fc00::1": priv, "fd00:42::43": priv, "fdff::1": priv, "::ffff:127.0.0.1": priv, "::ffff:10.1.2.3": priv,

		"0.0.0.0": nev, "0.1.2.3": nev, "169.254.169.254": nev, "169.254.0.1": nev, "::ffff:169.254.169.254": nev, "100.100.100.200": nev, "168.63.129.16": nev,
		"192.0.0.1": nev, "192.0.2.1": nev, "192.88.99.1": nev, "198.18.0.1": nev, "198.19.255.255": nev, "198.51.100.1": nev, "203.0.113.1": nev,
		"224.0.0.1": nev, "239.255.255.255": nev, "240.0.0.1": nev, "255.255.255.255": nev,
		"::": nev, "::2": nev, "::127.0.0.1": nev, "fe80::1": nev, "fe80::1%eth0": nev, "fec0::1": nev, "ff02::1": nev, "fd00:ec2::254": nev, "fd00:ec2::23": nev, "fd00:42::42": nev, "fd00:a9fe:a9fe::1": nev, "fd00:100::100:200": nev, "fd00:c1::a9fe:a9fe": nev, "fd20:ce::254": nev,
		"64:ff9b::7f00:1": nev, "64:ff9b::101:101": nev, "64:ff9b:1::1": nev, "2002:7f00:1::1": nev, "2001::1": nev, "2001:db8::1": nev, "3fff::1": nev,
		"100::1": nev, "4000::1": nev, "::ffff:0:127.0.0.1": nev, "5f00::1": nev,
	} {
		addr := netip.MustParseAddr(address)
		got := nev
		if (Network{AllowPrivate: true}).Check(addr) == nil {
			got = priv
		}
		if (Network{}).Check(addr) == nil {
			got = pub
		}
		if got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

func TestNetwork_allowed_networks(t *testing.T) {
	t.Parallel()
	n := Network{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/64"), netip.MustParsePrefix("169.254.169.254/32")}}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "fe80::1%eth0": true, "fe80:1::1": false, "169.254.169.254": true, "127.0.0.1": false, "1.1.1.1": true,
	} {
		if err := n.Check(netip.MustParseAddr(address)); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestNetwork_control_reads_the_actual_address(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"1.1.1.1:443": true, "[2606:4700::1111]:443": true, "127.0.0.1:80": false, "[::1]:80": false, "[::ffff:10.0.0.1]:80": false, "[fe80::1%eth0]:80": false,
		"example.org:80": false, "": false, "1.1.1.1": false,
	} {
		if err := (Network{}).control(t.Context(), "tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
