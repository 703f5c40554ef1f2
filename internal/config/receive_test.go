package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/config"
)

func TestReceive_from_a_file(t *testing.T) {
	t.Parallel()
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(secrets, []byte("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nwhsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = `
receive:
  listen: 127.0.0.1:8443
  origin: branch
  tls: {cert_file: /c, key_file: /k, client_ca_file: /a}
  max_bytes: 5000
  peers:
    head-office:
      secrets_file: SECRETS
      allow: [jobs.printer.>, events.public.order.*]
    other:
      secrets: [whsec_CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC]
      allow: jobs.x.y
`
	c, err := config.Load(config.Source{File: write(t, "m.yaml", strings.Replace(text, "SECRETS", secrets, 1))})
	if err != nil {
		t.Fatal(err)
	}
	r := c.Receiver()
	if len(r.Senders) != 2 || len(r.Senders["head-office"].Secrets) != 2 || len(r.Senders["head-office"].Allow) != 2 || r.Origin != "branch" || r.MaxBytes != 5000 {
		t.Errorf("%+v", r)
	}
	if shown := c.Redactor().Redact("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA whsec_CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC"); shown != "*** ***" {
		t.Errorf("a secret is shown: %s", shown)
	}
	if _, err := config.Parse("m.yaml", []byte(text)); err != nil { // whose file is not read
		t.Errorf("parsed alone: %v", err)
	}
}

func TestReceive_faults(t *testing.T) {
	t.Parallel()
	const peers = "\n  peers: {a: {secrets: [whsec_CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC], allow: [jobs.x.>]}}"
	for text, want := range map[string]string{
		"receive: {}": "",
		"receive: {listen: ':1', origin: b, peers: {}}":                                      "receive.peers: there are none",
		"receive:\n  listen: ':1'\n  origin: b" + peers:                                      "",
		"receive:\n  listen: nowhere\n  origin: b" + peers:                                   "receive.listen: ",
		"receive:\n  listen: ':1'" + peers:                                                   "receive.origin: ",
		"receive:\n  listen: ':1'\n  origin: a" + peers:                                      "receive.peers.a: is this bridge itself",
		"receive:\n  listen: ':1'\n  origin: b\n  max_bytes: 0" + peers:                      "receive.max_bytes: ",
		"receive:\n  listen: ':1'\n  origin: b\n  tls: {cert_file: x}" + peers:               "receive.tls.cert_file: ",
		"receive:\n  listen: ':1'\n  origin: b\n  tls: {client_ca_file: x}" + peers:          "receive.tls.client_ca_file: ",
		"receive: {origin: b}":                                                               "receive.listen: is missing",
		"receive:" + peers:                                                                   "receive.listen: is missing",
		"receive: {listen: ':1', origin: b, peers: {a: {}}}":                                 "receive.peers.a.secrets: there are none",
		"receive: {listen: ':1', origin: b, peers: {a: {secrets: [hush], allow: [jobs.>]}}}": "receive.peers.a.secrets: number 1",
		"receive: {listen: ':1', origin: b, peers: {a: {allow: [x]}}}":                       "receive.peers.a.allow: ",
		"receive: {listen: ':1', origin: b, peers: {A: {allow: [jobs.>]}}}":                  "receive.peers.A: want a name",
		"receive: {listen: ':1', origin: b, peers: {a: {alow: [jobs.>]}}}":                   "did you mean receive.peers.a.allow?",
		"receive: {listen: ':1', origin: b, peer: {a: {allow: [jobs.>]}}}":                   "did you mean receive.peers?",
	} {
		_, err := config.Parse("m.yaml", []byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\n%v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
}
