package outbound_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/outbound"
)

func TestSettings_become_rules(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		settings outbound.Settings
		reached  bool
	}{
		"authority and private":  {outbound.Settings{AllowPrivate: true, TLSCAFile: ca}, true},
		"authority and network":  {outbound.Settings{AllowedNetworks: []string{"127.0.0.0/8"}, TLSCAFile: ca}, true},
		"no authority":           {outbound.Settings{AllowPrivate: true}, false},
		"authority, not allowed": {outbound.Settings{TLSCAFile: ca}, false},
	} {
		n, err := c.settings.Network()
		if err != nil {
			t.Fatal(err)
		}
		res, err := outbound.Client(n, 0).Get(server.URL)
		if err == nil {
			res.Body.Close()
		}
		if (err == nil) != c.reached {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if n, err := (outbound.Settings{AllowedNetworks: []string{"10.1.0.0/16"}}).Network(); err != nil || n.Check(netip.MustParseAddr("10.1.2.3")) != nil || n.TLS != nil {
		t.Errorf("network %v, error %v", n, err)
	}
}

func TestSettings_refuse_what_makes_no_sense(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]outbound.Settings{
		`allowed_networks: "10.1.2.3/16"`:     {AllowedNetworks: []string{"10.1.2.3/16"}},
		`allowed_networks: "all"`:             {AllowedNetworks: []string{"10.0.0.0/8", "all"}},
		"tls.cert_file: goes together":        {TLSCertFile: file},
		"tls.cert_file: goes together with t": {TLSKeyFile: file},
		"tls.ca_file: open":                   {TLSCAFile: file + "y"},
		"has no certificate":                  {TLSCAFile: file},
		"tls.cert_file: tls":                  {TLSCertFile: file, TLSKeyFile: file},
	} {
		if _, err := s.Network(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
