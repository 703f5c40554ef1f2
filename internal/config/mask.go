package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// harmless are the parameters of addresses that are shown as they are.
var harmless = []string{
	"sslmode", "sslrootcert", "sslcert", "application_name", "connect_timeout", "target_session_attrs",
	"pool_max_conns", "pool_min_conns", "pool_max_conn_lifetime", "pool_max_conn_idle_time", "search_path", "timezone",
}

// MaskURL returns the address without passwords, tokens, unknown parameters and the paths of web addresses, which
// often are secrets themselves. An address that cannot be taken apart is masked as a whole.
func MaskURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return mask
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		if _, hasPassword := u.User.Password(); hasPassword || isPostgres(u) {
			b.WriteString(url.User(u.User.Username()).String())
			if hasPassword {
				b.WriteString(":" + mask)
			}
		} else {
			b.WriteString(mask) // NATS: a token
		}
		b.WriteByte('@')
	}
	b.WriteString(u.Host)
	switch {
	case isPostgres(u):
		b.WriteString(u.EscapedPath())
	case u.Path != "" && u.Path != "/":
		b.WriteString("/" + mask)
	}
	for i, pair := range strings.Split(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		b.WriteByte("?&"[min(i, 1)])
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(harmless, strings.ToLower(name)) {
			b.WriteString(pair)
		} else {
			b.WriteString(mask)
		}
	}
	return b.String()
}

func isPostgres(u *url.URL) bool { return u.Scheme == "postgres" || u.Scheme == "postgresql" }

var passwordWord = regexp.MustCompile(`(?i)(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s'&]+)`)

// secretsOf returns the parts of an address that must not be shown.
func secretsOf(raw string) []string {
	var secrets []string
	for _, m := range passwordWord.FindAllStringSubmatch(raw, -1) {
		secrets = append(secrets, strings.Trim(m[1], "'"))
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Host == "" {
		if _, rest, ok := strings.Cut(raw, "://"); ok { // not an address, but perhaps meant as one
			if user, _, ok := strings.Cut(rest, "@"); ok {
				if _, password, ok := strings.Cut(user, ":"); ok {
					user = password
				}
				secrets = append(secrets, user)
			}
		}
		return append(secrets, raw)
	}
	if u.User != nil {
		secret, hasPassword := u.User.Password()
		if !hasPassword && !isPostgres(u) {
			secret = u.User.Username()
		}
		_, rest, _ := strings.Cut(raw, "://")
		user, _, _ := strings.Cut(rest, "@")
		_, escaped, _ := strings.Cut(user, ":")
		secrets = append(secrets, secret, escaped)
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if !slices.Contains(harmless, strings.ToLower(name)) {
			plain, _ := url.QueryUnescape(value)
			secrets = append(secrets, value, plain)
		}
	}
	if !isPostgres(u) && len(u.Path) > 1 {
		secrets = append(secrets, u.Path[1:], u.EscapedPath()[1:])
		secrets = append(secrets, strings.Split(u.Path[1:], "/")...)
	}
	return secrets
}

// Redactor replaces secrets in text that was written by somebody else, such as a driver's error.
type Redactor struct{ secrets []string }

// Redactor knows all secrets of c. Secrets of fewer than 4 characters are left alone: replacing them would make
// messages unreadable, and guess them.
func (c *Config) Redactor() Redactor {
	list := []string{c.NATS.Token.Reveal(), c.NATS.Password.Reveal()}
	list = append(list, secretsOf(c.Database.URL.Reveal())...)
	for _, u := range c.NATS.URLs {
		list = append(list, secretsOf(u.Reveal())...)
	}
	for _, p := range c.Receive.Peers {
		for _, secret := range p.Secrets {
			list = append(list, secret.Reveal())
		}
	}
	for _, t := range c.Targets {
		list = append(list, t.secrets()...)
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < 4 })
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) }) // a secret may hold another
	return Redactor{slices.Compact(list)}
}

// Redact returns s with every known secret replaced.
func (r Redactor) Redact(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, mask)
	}
	return s
}
