package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/millbridge/millbridge/internal/testkit"
)

// file writes a file of the test's own.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConnect_signs_in_to_NATS uses each way to sign in, right and wrong.
func TestConnect_signs_in_to_NATS(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	pki := newPKI(t)
	for name, c := range map[string]struct {
		edit        func(o *server.Options)
		right, lack []string // settings
	}{
		"token": {
			func(o *server.Options) { o.Authorization = "the-token" },
			[]string{"nats.token_file=" + file(t, "token", []byte("the-token\n"))},
			[]string{"nats.token=another"},
		},
		"user": {
			func(o *server.Options) { o.Username, o.Password = "bridge", "the-password" },
			[]string{"nats.user=bridge", "nats.password_file=" + file(t, "password", []byte("the-password\n"))},
			[]string{"nats.user=bridge", "nats.password=x"},
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			[]string{"nats.nkey_file=" + file(t, "seed", seed)},
			[]string{"nats.token=x"},
		},
		"tls": {
			func(o *server.Options) { o.TLSConfig, o.TLSVerify = pki.server, true },
			[]string{"nats.tls.ca_file=" + pki.ca, "nats.tls.cert_file=" + pki.cert, "nats.tls.key_file=" + pki.key},
			[]string{"nats.tls.ca_file=" + pki.ca},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NATS(t, c.edit)
			status := func(settings []string) result {
				args := []string{"status", "--json", "--database-url", testkit.PostgresURL(pool), "--nats-url", s.URL()}
				for _, set := range settings {
					args = append(args, "--set", set)
				}
				return call(t, "", nil, args...)
			}
			reachable := func(r result) any { return r.objects(t)[0]["nats"].(map[string]any)["reachable"] }
			if r := status(c.right); reachable(r) != true {
				t.Errorf("signed in: %s", r)
			}
			for _, settings := range [][]string{c.lack, nil} {
				r := status(settings)
				if reachable(r) != false || r.code != 3 || !strings.Contains(r.stdout, "NATS cannot be reached") {
					t.Errorf("%q: %s", settings, r)
				}
			}
		})
	}
}

// pki is a certificate authority with one certificate, for both ends.
type pki struct {
	server        *tls.Config
	ca, cert, key string // files
}

func newPKI(t *testing.T) pki {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(block("CERTIFICATE", caDER))
	pair, err := tls.X509KeyPair(block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER))
	if err != nil {
		t.Fatal(err)
	}
	return pki{
		server: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
		ca:     file(t, "ca.pem", block("CERTIFICATE", caDER)),
		cert:   file(t, "cert.pem", block("CERTIFICATE", der)),
		key:    file(t, "key.pem", block("EC PRIVATE KEY", keyDER)),
	}
}
