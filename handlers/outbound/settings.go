package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// Settings are the rules of a [Network] as a target's settings have them; package configgroup reads the tags. Embed it.
type Settings struct {
	AllowPrivate    bool     `key:"allow_private" doc:"permit loopback and private addresses"`
	AllowedNetworks []string `key:"allowed_networks" doc:"networks that are permitted whatever they are, such as 10.1.0.0/16"`
	TLSCAFile       string   `key:"tls.ca_file" doc:"certificates that the server's is checked against, instead of the system's"`
	TLSCertFile     string   `key:"tls.cert_file" doc:"own certificate, for servers that ask for one"`
	TLSKeyFile      string   `key:"tls.key_file" doc:"its key"`
}

// Check reports everything that is wrong with the settings, without reading files. It is not called Validate, so that a
// struct that embeds Settings does not seem to have been checked.
func (s Settings) Check() error {
	_, err := s.networks()
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		err = errors.Join(err, errors.New("tls.cert_file: goes together with tls.key_file"))
	}
	return err
}

func (s Settings) networks() ([]netip.Prefix, error) {
	var list []netip.Prefix
	var errs []error
	for _, text := range s.AllowedNetworks {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			errs = append(errs, fmt.Errorf("allowed_networks: %q is no network such as 10.1.0.0/16", text))
			continue
		}
		list = append(list, p)
	}
	return list, errors.Join(errs...)
}

// Network reads the files and returns the rules. Call it once for a target: each call with TLS files makes a pool of
// connections of its own.
func (s Settings) Network() (Network, error) {
	if err := s.Check(); err != nil {
		return Network{}, err
	}
	networks, _ := s.networks()
	n := Network{AllowPrivate: s.AllowPrivate, AllowedNetworks: networks}
	if s.TLSCAFile == "" && s.TLSCertFile == "" {
		return n, nil
	}
	n.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLSCAFile != "" {
		pem, err := os.ReadFile(s.TLSCAFile)
		if err != nil {
			return Network{}, fmt.Errorf("tls.ca_file: %w", err)
		}
		n.TLS.RootCAs = x509.NewCertPool()
		if !n.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return Network{}, fmt.Errorf("tls.ca_file: %s has no certificate", s.TLSCAFile)
		}
	}
	if s.TLSCertFile != "" {
		cert, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
		if err != nil {
			return Network{}, fmt.Errorf("tls.cert_file: %w", err)
		}
		n.TLS.Certificates = []tls.Certificate{cert}
	}
	return n, nil
}
