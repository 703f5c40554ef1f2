package natslink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

// Settings say where the servers are and how to sign in; package configgroup reads the tags. Embed it. At most one of
// CredsFile, NKeyFile, Token and User is given.
type Settings struct {
	URLs        []string           `key:"url" required:"true" doc:"addresses of the servers, such as nats://host:4222"`
	CredsFile   string             `key:"creds_file" doc:"credentials: JWT and seed in one file"`
	NKeyFile    string             `key:"nkey_file" doc:"seed of an nkey"`
	Token       configgroup.Secret `key:"token" doc:"token to sign in with"`
	User        string             `key:"user" doc:"user to sign in as"`
	Password    configgroup.Secret `key:"password" doc:"the user's password"`
	TLSCAFile   string             `key:"tls.ca_file" doc:"certificates that the servers' are checked against, instead of the system's"`
	TLSCertFile string             `key:"tls.cert_file" doc:"own certificate, for servers that ask for one"`
	TLSKeyFile  string             `key:"tls.key_file" doc:"its key"`
}

// Check reports everything that is wrong with the settings, without reading files. It is not called Validate, so that a
// struct that embeds Settings does not seem to have been checked.
func (s Settings) Check() error {
	var errs []error
	if len(s.URLs) == 0 {
		errs = append(errs, errors.New("url: is missing"))
	}
	for _, text := range s.URLs {
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			errs = append(errs, errors.New("url: is not an address such as nats://host:4222"))
		case u.User != nil:
			errs = append(errs, errors.New("url: has a user or token, which would be printed; use user, password and token"))
		}
	}
	var ways []string
	for _, w := range []struct{ name, value string }{
		{"creds_file", s.CredsFile}, {"nkey_file", s.NKeyFile}, {"token", s.Token.Reveal()}, {"user", s.User},
	} {
		if w.value != "" {
			ways = append(ways, w.name)
		}
	}
	if len(ways) > 1 {
		errs = append(errs, fmt.Errorf("%s: is set together with %s; sign in one way", ways[1], ways[0]))
	}
	if !s.Password.IsZero() && s.User == "" {
		errs = append(errs, errors.New("password: is set without user"))
	}
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		errs = append(errs, errors.New("tls.cert_file: goes together with tls.key_file"))
	}
	return errors.Join(errs...)
}

// Options reads the files and returns how to sign in. Each fault begins with the key that it belongs to.
func (s Settings) Options() ([]nats.Option, error) {
	var opts []nats.Option
	var errs []error
	if s.CredsFile != "" {
		_, err := os.ReadFile(s.CredsFile) // the client reads it again at each sign-in, and finds out too late
		errs = append(errs, keyed("creds_file", err))
		opts = append(opts, nats.UserCredentials(s.CredsFile))
	}
	if s.NKeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(s.NKeyFile)
		errs = append(errs, keyed("nkey_file", err))
		opts = append(opts, nkey)
	}
	if !s.Token.IsZero() {
		opts = append(opts, nats.Token(s.Token.Reveal()))
	}
	if s.User != "" {
		opts = append(opts, nats.UserInfo(s.User, s.Password.Reveal()))
	}
	if s.TLSCAFile != "" {
		_, err := os.ReadFile(s.TLSCAFile)
		errs = append(errs, keyed("tls.ca_file", err))
		opts = append(opts, nats.RootCAs(s.TLSCAFile))
	}
	if s.TLSCertFile != "" {
		_, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
		errs = append(errs, keyed("tls.cert_file", err))
		opts = append(opts, nats.ClientCert(s.TLSCertFile, s.TLSKeyFile))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return opts, nil
}

func keyed(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// urls is the list as the client takes it.
func (s Settings) urls() string { return strings.Join(s.URLs, ",") }
