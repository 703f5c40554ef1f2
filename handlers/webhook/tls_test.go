package webhook_test

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// clientCertificate writes a certificate that signs itself, and its key.
func clientCertificate(t *testing.T, dir string) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))
	pool = x509.NewCertPool()
	pool.AddCert(must(x509.ParseCertificate(der)))
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
	return certFile, keyFile, pool
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The settings as an operator writes them: an own authority, a client certificate, secrets in files.
func TestConfig_from_variables_and_files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile, clients := clientCertificate(t, dir)
	var requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		for _, secret := range []string{oldSecret, newSecret} {
			if err := webhook.Verify(secret, r.Header, body, 0); err != nil {
				t.Error(err)
			}
		}
		if r.URL.RequestURI() != "/hook?token=x" || r.Header.Get("Authorization") != "Bearer y" || r.Header.Get("X-Tenant") != "t1" || string(body) != `{"order": 7}` {
			t.Errorf("%s with %v: %s", r.URL, r.Header, body)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	t.Cleanup(server.Close)
	write(t, filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	write(t, filepath.Join(dir, "url"), []byte(server.URL+"/hook?token=x\n"))
	write(t, filepath.Join(dir, "secrets"), []byte(newSecret+"\n"+oldSecret+"\n"))
	write(t, filepath.Join(dir, "token"), []byte("Bearer y\n"))
	env := []string{
		"MILLBRIDGE_HOOK_URL_FILE=" + dir + "/url", "MILLBRIDGE_HOOK_SECRETS_FILE=" + dir + "/secrets", "MILLBRIDGE_HOOK_FORMAT=raw",
		`MILLBRIDGE_HOOK_PAYLOAD={"order": {{.payload.id}}}`, `MILLBRIDGE_HOOK_HEADERS={"authorization": {"file": "` + dir + `/token"}, "x-tenant": "{{.tenant}}"}`,
		"MILLBRIDGE_HOOK_ALLOWED_NETWORKS=127.0.0.0/8", "MILLBRIDGE_HOOK_TLS_CA_FILE=" + dir + "/ca.pem",
	}
	post := func(env ...string) error {
		cfg, err := configgroup.Load[webhook.Config]("hook", configgroup.Environ(env))
		if err != nil {
			return err
		}
		if cfg.MaxResponseBytes != webhook.DefaultMaxResponseBytes || cfg.RetryAfterMax != webhook.DefaultRetryAfterMax || cfg.Format != webhook.Raw {
			t.Errorf("config %+v", cfg)
		}
		hook, err := webhook.New(cfg)
		if err != nil {
			return err
		}
		return hook.Handle(t.Context(), schema.NewJob("hook", "a", []byte(`{"id":7}`), schema.WithTenant("t1")))
	}
	wantKind(t, post(env...), schema.Temporary) // the server wants a certificate
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests without a certificate", n)
	}
	if err := post(append(env, "MILLBRIDGE_HOOK_TLS_CERT_FILE="+certFile, "MILLBRIDGE_HOOK_TLS_KEY_FILE="+keyFile)...); err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	for _, name := range []string{"MILLBRIDGE_HOOK_TIMEOUT=1s", "MILLBRIDGE_HOOK_NETWORK={}", "MILLBRIDGE_HOOK_LOGGER=x"} {
		if err := post(append(env, name)...); err == nil || !strings.Contains(err.Error(), "is not known") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := post(append(env, "MILLBRIDGE_HOOK_TLS_CERT_FILE="+dir+"/nowhere", "MILLBRIDGE_HOOK_TLS_KEY_FILE="+keyFile)...); err == nil || !strings.Contains(err.Error(), "tls.cert_file: ") {
		t.Errorf("no certificate: %v", err)
	}
}

// A server that compresses although it was asked not to must not make a large answer of a small one.
func TestHandle_of_a_compressed_bomb(t *testing.T) {
	t.Parallel()
	const unpacked = 4 << 20
	var bomb strings.Builder
	z := gzip.NewWriter(&bomb)
	for range unpacked >> 20 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{200, 400, 500} {
		server := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("asked for %q", got)
			}
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, bomb.String())
		})
		// Enough for the packed answer: it is read to its end, which would not be reached if it were unpacked, and the
		// connection is used again.
		hook := newHook(t, webhook.Config{URL: text(server.URL), MaxResponseBytes: 1 << 20, Timeout: time.Minute})
		for range 2 {
			if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); (err == nil) != (code == 200) {
				t.Errorf("%d: %v", code, err)
			}
		}
		if from := server.from(); from[0] != from[1] {
			t.Errorf("%d: the connection was not used again: %v", code, from)
		}
	}
}

func TestHandle_with_the_network_of_its_settings(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, status(200))
	for name, settings := range map[string]outbound.Settings{"private": {AllowPrivate: true}, "listed": {AllowedNetworks: []string{"127.0.0.1/32"}}} {
		hook, err := webhook.New(webhook.Config{URL: text(server.URL), Settings: settings})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := hook.Handle(t.Context(), schema.NewJob("t", "a", nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := webhook.New(webhook.Config{URL: text(server.URL), Settings: outbound.Settings{AllowedNetworks: []string{"127.0.0.2/32"}}}); err == nil {
		t.Error("an address that is not listed is accepted")
	}
}
