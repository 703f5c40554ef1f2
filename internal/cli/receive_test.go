package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/testkit"
)

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRun_receives_from_peers sends jobs from one running bridge to another, by TLS, which handles each of them once.
func TestRun_receives_from_peers(t *testing.T) {
	t.Parallel()
	pki := testkit.NewPKI(t)
	printer := newReceiver(t)
	address := freeAddress(t)
	here, there := t.TempDir(), t.TempDir()
	configure := func(dir, text string) string {
		text = strings.NewReplacer("ADDRESS", address, "PRINTER", printer.url, "CA", pki.CA, "CERT", pki.Cert, "KEY", pki.Key, "SECRET", testSecret).Replace(text)
		return file(t, filepath.Base(dir)+".yaml", []byte("data_dir: "+dir+"\n"+text))
	}
	branch := configure(there, `
receive:
  listen: ADDRESS
  origin: branch
  tls: {cert_file: CERT, key_file: KEY, client_ca_file: CA}
  peers:
    head-office: {secrets: [SECRET], allow: [jobs.printer.>]}
targets:
  printer: {type: webhook, url: PRINTER, secrets: [SECRET], allow_private: true}
`)
	office := configure(here, `
targets:
  branch:
    type: peer
    url: https://ADDRESS/messages
    origin: head-office
    target: printer
    secrets: [SECRET]
    allow_private: true
    tls: {ca_file: CA, cert_file: CERT, key_file: KEY}
    retry: {base: 50ms, max: 100ms, max_attempts: 1000}
`)
	sending := start(t, "run", "--migrate", "--config", office)
	receiving := start(t, "run", "--migrate", "--config", branch)
	testkit.Eventually(t, testTimeout, func() error {
		if r := call(t, "", nil, "status", "--config", office); r.code != 0 {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	for i := range 5 {
		if r := call(t, "", nil, "publish", "job", "branch", "label", fmt.Sprintf(`{"n":%d}`, i), "--config", office, "--key", fmt.Sprint("k", i)); r.code != 0 {
			t.Fatal(r)
		}
	}
	testkit.Eventually(t, testTimeout, func() error {
		printer.mu.Lock()
		defer printer.mu.Unlock()
		got := slices.Sorted(slices.Values(printer.got))
		if want := []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(got, want) {
			return fmt.Errorf("labels %q", got)
		}
		return nil
	})
	if res, err := http.Post("http://"+address+"/messages", "text/plain", bytes.NewReader(nil)); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", res.Status)
		}
	}
	testkit.Eventually(t, testTimeout, func() error {
		if !strings.Contains(receiving.text(), "TLS handshake error") {
			return errors.New("who does not get in leaves no line in the log")
		}
		return nil
	})
	for _, c := range []string{office, branch} { // and nothing is unaccounted for
		if r := call(t, "", nil, "verify", "--config", c); r.code != 0 {
			t.Errorf("%s", r)
		}
	}
	for name, p := range map[string]*process{"sender": sending, "receiver": receiving} {
		if code := p.end(); code != 0 {
			t.Errorf("%s: %d\n%s", name, code, p.text())
		}
		if strings.Contains(p.text(), testSecret) {
			t.Errorf("%s shows the secret", name)
		}
	}
}

func TestRun_refuses_to_receive_in_vain(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad := file(t, "bad.pem", []byte("hello"))
	for name, c := range map[string]struct {
		sets []string
		want string
	}{
		"taken":   {[]string{"receive.listen=" + taken.Addr().String()}, "receive.listen"},
		"no cert": {[]string{"receive.listen=127.0.0.1:0", "receive.tls.cert_file=" + bad, "receive.tls.key_file=" + bad}, "receive.tls.cert_file"},
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		args := []string{
			"run", "--migrate", "--data-dir", dir, "--set", "receive.origin=b", "--set", "receive.peers.a.secrets=" + testSecret, "--set", "receive.peers.a.allow=jobs.>",
		}
		for _, set := range c.sets {
			args = append(args, "--set", set)
		}
		if r := call(t, "", nil, args...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: %s", name, r)
		}
	}
}

// TestRun_passes_messages_on_to_another_cluster publishes jobs at one bridge whose targets are another's, by NATS.
func TestRun_passes_messages_on_to_another_cluster(t *testing.T) {
	t.Parallel()
	printer := newReceiver(t)
	there := t.TempDir()
	branch := file(t, "there.yaml", fmt.Appendf(nil, `
data_dir: %s
targets:
  printer: {type: webhook, url: %s, secrets: [%s], allow_private: true}
`, there, printer.url, testSecret))
	receiving := start(t, "run", "--migrate", "--config", branch)
	var address, token string
	testkit.Eventually(t, testTimeout, func() error {
		running, ok, err := embedded.Find(t.Context(), there)
		if err != nil || !ok {
			return fmt.Errorf("not there: %v", err)
		}
		u, err := url.Parse(running.NATSURL)
		if err != nil {
			return err
		}
		address, token = "nats://"+u.Host, u.User.Username()
		return nil
	})
	office := file(t, "here.yaml", fmt.Appendf(nil, `
data_dir: %s
targets:
  branch: {type: nats, url: [%s], token: %s, origin: head-office, prefix: mb, target: printer}
`, t.TempDir(), address, token))
	sending := start(t, "run", "--migrate", "--config", office)
	testkit.Eventually(t, testTimeout, func() error {
		if r := call(t, "", nil, "status", "--config", office); r.code != 0 {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	if r := call(t, "", nil, "publish", "job", "branch", "label", `{"n":1}`, "--config", office); r.code != 0 {
		t.Fatal(r)
	}
	testkit.Eventually(t, testTimeout, func() error { return printer.has(`{"n":1}`) })
	for _, c := range []string{office, branch} {
		if r := call(t, "", nil, "verify", "--config", c); r.code != 0 {
			t.Errorf("%s", r)
		}
	}
	for name, p := range map[string]*process{"sender": sending, "receiver": receiving} {
		if code := p.end(); code != 0 || strings.Contains(p.text(), token) {
			t.Errorf("%s: %d\n%s", name, code, p.text())
		}
	}
}
