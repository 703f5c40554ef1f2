package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/peer"
)

// Receive says whether run takes messages of other bridges by HTTP, and from whom.
type Receive struct {
	Listen       string // host:port; empty for not at all
	Origin       string // what this bridge is called where loops are looked for
	CertFile     string // TLS; without it requests are signed, but not secret
	KeyFile      string
	ClientCAFile string // certificates that those of clients are checked against; empty asks for none
	MaxBytes     int    // of one request
	Peers        map[string]*Peer
}

// Peer is a bridge that may send.
type Peer struct {
	Secrets     []Secret // one of them has signed
	SecretsFile string   // one secret a line
	Allow       []string // subjects without prefix, as jobs.crm.>
}

const peersPrefix = "receive.peers."

// PeerNames returns the names of all bridges that may send, sorted.
func (c *Config) PeerNames() []string { return slices.Sorted(maps.Keys(c.Receive.Peers)) }

// Receiver is what the receiver is told, but for where it stores.
func (c *Config) Receiver() peer.ReceiverConfig {
	r := peer.ReceiverConfig{Origin: c.Receive.Origin, MaxBytes: int64(c.Receive.MaxBytes), Senders: map[string]peer.Sender{}}
	for name, p := range c.Receive.Peers {
		s := peer.Sender{Allow: p.Allow}
		for _, secret := range p.Secrets {
			s.Secrets = append(s.Secrets, configgroup.NewSecret(secret.Reveal()))
		}
		r.Senders[name] = s
	}
	return r
}

// TLS reads the files; nil without any. A fault begins with the key that it belongs to.
func (r *Receive) TLS() (*tls.Config, error) {
	if r.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(r.CertFile, r.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("receive.tls.cert_file: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if r.ClientCAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(r.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("receive.tls.client_ca_file: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("receive.tls.client_ca_file: %s has no certificate", r.ClientCAFile)
	}
	return cfg, nil
}

func (c *Config) receiveSettings() []setting {
	r := &c.Receive
	list := []setting{
		{"receive.listen", &r.Listen},
		{"receive.origin", &r.Origin},
		{"receive.tls.cert_file", &r.CertFile},
		{"receive.tls.key_file", &r.KeyFile},
		{"receive.tls.client_ca_file", &r.ClientCAFile},
		{"receive.max_bytes", &r.MaxBytes},
	}
	for _, name := range c.PeerNames() {
		p := r.Peers[name]
		list = append(
			list,
			setting{peersPrefix + name + ".secrets", &p.Secrets},
			setting{peersPrefix + name + ".secrets_file", &p.SecretsFile},
			setting{peersPrefix + name + ".allow", &p.Allow},
		)
	}
	return list
}

// declarePeer makes room for a bridge that may send.
func (l *layer) declarePeer(name string) {
	if l.config.Receive.Peers == nil {
		l.config.Receive.Peers = map[string]*Peer{}
	}
	if l.config.Receive.Peers[name] == nil {
		l.config.Receive.Peers[name] = &Peer{}
	}
}

// peerOf returns the name of the bridge that a key belongs to.
func peerOf(key string) (name string, ok bool) {
	below, ok := strings.CutPrefix(key, peersPrefix)
	name, _, found := strings.Cut(below, ".")
	return name, ok && found && name != ""
}

func (c *Config) checkReceive(bad func(key, format string, args ...any)) {
	r := c.Receive
	if r.Listen == "" {
		if len(r.Peers) > 0 || r.Origin+r.CertFile+r.KeyFile+r.ClientCAFile != "" {
			bad("receive.listen", "is missing, so that the other keys of receive are of no use")
		}
		return
	}
	if !isListenAddress(r.Listen) {
		bad("receive.listen", "%s is not an address to listen on such as 0.0.0.0:8443", quote(r.Listen))
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		bad("receive.tls.cert_file", "and receive.tls.key_file go together")
	}
	if r.ClientCAFile != "" && r.CertFile == "" {
		bad("receive.tls.client_ca_file", "is set without receive.tls.cert_file")
	}
	if r.MaxBytes < 1 {
		bad("receive.max_bytes", "must be at least 1")
	}
	cfg := c.Receiver()
	cfg.Store = peer.StoreIn(nil, nil) // it is known when the bridge is open
	err := cfg.Validate()
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rest, _ := strings.Cut(line, ": ")
		key = "receive." + key
		if name, ok := peerOf(key); ok && strings.HasSuffix(key, ".secrets") && len(r.Peers[name].Secrets) == 0 && r.Peers[name].SecretsFile != "" {
			continue // they are read later
		}
		if key != "receive.max_bytes" {
			bad(key, "%s", rest)
		}
	}
}
