package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// check returns what is wrong with the values, each fault with its origin. The database may be all that is asked for.
func (c *Config) check(databaseAlone bool) []error {
	l := newLayer(c)
	bad := func(key, format string, args ...any) { l.fault(c.near(key), key, format, args...) }
	if err := (schema.Subjects{Prefix: c.Prefix}).Validate(); err != nil || c.Prefix == "" {
		bad("prefix", "must be a-z, 0-9, '-' and '_', starting with a letter or digit")
	}
	if c.DataDir == "" && c.Embedded() {
		bad("data_dir", "is empty")
	}
	if u := c.Database.URL.Reveal(); u != "" && !looksLikePostgres(u) {
		bad("database.url", "is not an address such as postgres://user@host:5432/database")
	}
	if n := c.Database.MaxConnections; n < 0 || n > 10000 {
		bad("database.max_connections", "must be between 0 and 10000")
	}
	switch {
	case c.Database.URL == "" && len(c.NATS.URLs) > 0:
		bad("nats.url", "is set without database.url; set both, or neither for the embedded default")
	case c.Database.URL != "" && len(c.NATS.URLs) == 0 && !databaseAlone:
		bad("database.url", "is set without nats.url; set both, or neither for the embedded default")
	}
	c.checkNATS(bad)
	c.checkStock(bad)
	if c.EventsTTL < Duration(1e9) {
		bad("events_ttl", "must be at least 1s")
	}
	if c.StopTimeout < 0 {
		bad("stop_timeout", "must not be negative")
	}
	if a := c.Metrics.Listen; a != "" && !isListenAddress(a) {
		bad("metrics.listen", "%s is not an address to listen on such as 127.0.0.1:9464", quote(a))
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad("log.level", "%s is none of debug, info, warn and error", quote(c.Log.Level))
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		bad("log.format", "%s is neither text nor json", quote(c.Log.Format))
	}
	c.checkReceive(bad)
	for _, name := range c.TargetNames() {
		c.Targets[name].check(name, bad)
	}
	return l.faults
}

func isListenAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func (c *Config) checkNATS(bad func(key, format string, args ...any)) {
	n := c.NATS
	for _, u := range n.URLs {
		parsed, err := url.Parse(u.Reveal())
		if err != nil || parsed.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) {
			bad("nats.url", "is not an address such as nats://host:4222")
		}
	}
	type named struct{ key, value string }
	given := func(list ...named) (keys []string) {
		for _, s := range list {
			if s.value != "" {
				keys = append(keys, s.key)
			}
		}
		return keys
	}
	ways := given(named{"nats.creds_file", n.CredsFile}, named{"nats.nkey_file", n.NKeyFile}, named{"nats.token", n.Token.Reveal()}, named{"nats.user", n.User})
	if c.Embedded() {
		files := given(named{"nats.tls.ca_file", n.CAFile}, named{"nats.tls.cert_file", n.CertFile})
		for _, key := range slices.Concat(ways, files) {
			bad(key, "is set without nats.url; the embedded default has a server of its own")
		}
	}
	if len(ways) > 1 {
		bad(ways[1], "is set together with %s; sign in one way", ways[0])
	}
	if n.Password != "" && n.User == "" {
		bad("nats.password", "is set without nats.user")
	}
	if (n.CertFile == "") != (n.KeyFile == "") {
		bad("nats.tls.cert_file", "and nats.tls.key_file go together")
	}
	if !slices.Contains([]int{0, 1, 3, 5}, n.Replicas) {
		bad("nats.replicas", "must be 1, 3 or 5")
	}
}

func looksLikePostgres(raw string) bool {
	if !strings.Contains(raw, "://") { // keyword=value form
		return strings.Contains(raw, "=")
	}
	u, err := url.Parse(raw)
	if err != nil { // several hosts are written in a way that only the driver reads
		return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
	}
	return isPostgres(u)
}

// String names the effective values without secrets, for messages.
func (c *Config) String() string {
	if c.Embedded() {
		return "embedded default in " + c.DataDir
	}
	urls := make([]string, len(c.NATS.URLs))
	for i, u := range c.NATS.URLs {
		urls[i] = u.String()
	}
	if len(urls) == 0 {
		return c.Database.URL.String()
	}
	return fmt.Sprintf("%s and %s", c.Database.URL, strings.Join(urls, ","))
}
