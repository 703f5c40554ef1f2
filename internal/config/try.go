package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/targets"
	"github.com/millbridge/millbridge/schema"
)

// Try reads all files that the configuration names, lets the driver read the database's address, and makes the handler of
// each target and drops it again. It finds what the settings alone do not tell: files with certificates that are not there
// or hold something else, and events for which a target has no action. It connects to nothing. The configuration must be
// one that [Load] found nothing wrong with.
func (c *Config) Try() error {
	l := newLayer(c)
	c.tryServers(l)
	for _, name := range c.TargetNames() {
		t := c.Targets[name]
		bad := func(key, format string, args ...any) {
			key = targetsPrefix + name + "." + key
			l.fault(c.near(key), key, format, args...)
		}
		h, err := t.own.Open(targets.Env{Name: name, Timeout: time.Duration(t.Timeout), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.blame(bad, err)
			continue
		}
		if typed, ok := h.(interface{ Names() []string }); ok {
			for _, event := range t.Events {
				if takes := (handlers.Subscription{Events: []string{event}}).Takes; !slices.ContainsFunc(typed.Names(), takes) {
					bad("events", "%s is the name of no action, so each would be a dead letter; there are %s", quote(event), strings.Join(typed.Names(), ", "))
				}
			}
		}
		if err := targets.Close(h); err != nil {
			t.blame(bad, err)
		}
	}
	return errors.Join(l.faults...)
}

// tryServers reads what tells how to reach the servers, and how to be reached.
func (c *Config) tryServers(l *layer) {
	blame := func(section string, err error) {
		if err == nil {
			return
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			key, rest, _ := strings.Cut(line, ": ")
			l.fault(c.near(section+key), section+key, "%s", rest)
		}
	}
	if c.Database.URL != "" {
		if _, err := pgxpool.ParseConfig(c.Database.URL.Reveal()); err != nil {
			blame("database.", fmt.Errorf("url: %s", schema.OneLine(err.Error())))
		}
	}
	_, err := c.NATS.SignIn().Options()
	blame("nats.", err)
	if name := c.NATS.CAFile; name != "" {
		if pem, err := os.ReadFile(name); err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			blame("nats.", fmt.Errorf("tls.ca_file: %s has no certificate", name))
		}
	}
	_, err = c.Receive.TLS()
	blame("", err)
}
