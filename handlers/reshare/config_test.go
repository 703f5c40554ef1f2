package reshare_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func TestConfig_is_read_from_the_environment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "west")
	if err := os.WriteFile(file, []byte(westPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := configgroup.Load[reshare.Config]("ill", configgroup.Environ([]string{
		"MILLBRIDGE_ILL_BASE_URL=https://okapi.example.org", "MILLBRIDGE_ILL_TENANT=east", "MILLBRIDGE_ILL_USERNAME=bridge",
		"MILLBRIDGE_ILL_PASSWORD=" + eastPassword,
		`MILLBRIDGE_ILL_TENANTS={"west":{"username":"westbridge","password":{"file":"` + file + `"}}}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if west := cfg.Tenants["west"]; west.Password.Reveal() != westPassword || west.Username != "westbridge" || cfg.RequestTimeout != 20*time.Second {
		t.Errorf("config %+v", cfg)
	}
	_, err = configgroup.Load[reshare.Config]("ill", configgroup.Environ([]string{"MILLBRIDGE_ILL_TENANTS=" + `{"west":{"user":"x"}}`}))
	wantText(t, err, "MILLBRIDGE_ILL_BASE_URL: is missing", "MILLBRIDGE_ILL_TENANTS", "user")
}

func TestConfig_refuses_what_makes_no_sense(t *testing.T) {
	t.Parallel()
	secret := configgroup.NewSecret(eastPassword)
	for want, change := range map[string]func(*reshare.Config){
		"base_url: is missing":              func(c *reshare.Config) { c.BaseURL = nil },
		"base_url: is not an http":          func(c *reshare.Config) { c.BaseURL = &url.URL{Scheme: "ftp", Host: "x"} },
		"base_url: is not an http ":         func(c *reshare.Config) { c.BaseURL = &url.URL{Scheme: "https"} },
		"base_url: has user":                func(c *reshare.Config) { c.BaseURL.User = url.UserPassword("u", eastPassword) },
		"base_url: has a query":             func(c *reshare.Config) { c.BaseURL.RawQuery = "token=" + eastPassword },
		"base_url: address 10.0.0.1":        func(c *reshare.Config) { c.BaseURL.Host = "10.0.0.1:9130" },
		"tenant: is missing; name one":      func(c *reshare.Config) { *c = reshare.Config{BaseURL: c.BaseURL} },
		"tenant: is missing; username":      func(c *reshare.Config) { c.Tenant = "" },
		"tenant: want letters":              func(c *reshare.Config) { c.Tenant = "a b" },
		"username: is missing":              func(c *reshare.Config) { c.Username = "" },
		"password: is missing":              func(c *reshare.Config) { c.Password = configgroup.Secret{} },
		"tenants.west.username: is missing": func(c *reshare.Config) { c.Tenants = map[string]reshare.Credentials{"west": {Password: secret}} },
		"tenants.west.password: is missing": func(c *reshare.Config) { c.Tenants = map[string]reshare.Credentials{"west": {Username: "u"}} },
		"tenants.a b: want letters":         func(c *reshare.Config) { c.Tenants = map[string]reshare.Credentials{"a\nb": {"u", secret}} },
		`tenants: "east" is the tenant`:     func(c *reshare.Config) { c.Tenants = map[string]reshare.Credentials{"east": {"u", secret}} },
		"request_timeout: is -1s":           func(c *reshare.Config) { c.RequestTimeout = -time.Second },
		"allowed_networks:":                 func(c *reshare.Config) { c.AllowedNetworks = []string{"all"} },
		"tls.cert_file: goes together":      func(c *reshare.Config) { c.TLSCertFile = "x" },
	} {
		cfg := config("https://okapi.example.org/okapi")
		cfg.AllowPrivate = false
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		err := cfg.Validate()
		wantText(t, err, want)
		if err == nil || strings.Contains(err.Error(), eastPassword) || strings.Contains(err.Error(), "/okapi") {
			t.Errorf("%s: error %v", want, err)
		}
		if _, err := reshare.New(cfg); err == nil {
			t.Errorf("%s: there is a handler all the same", want)
		}
	}
	cfg := config("http://10.1.2.3:9130")
	cfg.AllowPrivate, cfg.AllowedNetworks = false, []string{"10.1.0.0/16"}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// A gateway with a certificate of its own authority, which wants one of ours.
func TestTLS_with_own_authority_and_certificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, caKey := certificate(t, nil, nil)
	cert, key := certificate(t, ca, caKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := reshare.Config{}
	for _, f := range []struct {
		into *string
		kind string
		data []byte
	}{{&cfg.TLSCAFile, "CERTIFICATE", ca.Raw}, {&cfg.TLSCertFile, "CERTIFICATE", cert.Raw}, {&cfg.TLSKeyFile, "PRIVATE KEY", keyDER}} {
		name, err := os.CreateTemp(dir, "*.pem")
		if err != nil {
			t.Fatal(err)
		}
		if err := pem.Encode(name, &pem.Block{Type: f.kind, Bytes: f.data}); err != nil {
			t.Fatal(err)
		}
		if err := name.Close(); err != nil {
			t.Fatal(err)
		}
		*f.into = name.Name()
	}
	g := open(t, resharetest.Config{})
	server := httptest.NewUnstartedServer(g)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS12,
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	with := config(server.URL)
	with.TLSCAFile, with.TLSCertFile, with.TLSKeyFile = cfg.TLSCAFile, cfg.TLSCertFile, cfg.TLSKeyFile
	must[reshare.Created](t, newTarget(t, with), job(reshare.ActionCreate, book()))

	for _, without := range []func(*reshare.Config){
		func(c *reshare.Config) { c.TLSCertFile, c.TLSKeyFile = "", "" },
		func(c *reshare.Config) { c.TLSCAFile = "" },
	} {
		other := with
		without(&other)
		_, err := run(t, newTarget(t, other), job(reshare.ActionCreate, book()))
		wantKind(t, err, schema.Temporary)
	}
}

// certificate makes one for 127.0.0.1, signed by an authority or, without any, by itself.
func certificate(t *testing.T, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: by == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		by, byKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
