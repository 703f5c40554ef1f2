package config

import (
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/internal/spelling"
)

// A setting binds a key to the field that holds it.
type setting struct {
	key   string
	field any // pointer to the field
}

// settings lists all keys in the order in which they are printed.
func (c *Config) settings() []setting {
	list := []setting{
		{"data_dir", &c.DataDir},
		{"prefix", &c.Prefix},
		{"database.url", &c.Database.URL},
		{"database.url_file", &c.Database.URLFile},
		{"database.max_connections", &c.Database.MaxConnections},
		{"nats.url", &c.NATS.URLs},
		{"nats.creds_file", &c.NATS.CredsFile},
		{"nats.nkey_file", &c.NATS.NKeyFile},
		{"nats.token", &c.NATS.Token},
		{"nats.token_file", &c.NATS.TokenFile},
		{"nats.user", &c.NATS.User},
		{"nats.password", &c.NATS.Password},
		{"nats.password_file", &c.NATS.PasswordFile},
		{"nats.tls.ca_file", &c.NATS.CAFile},
		{"nats.tls.cert_file", &c.NATS.CertFile},
		{"nats.tls.key_file", &c.NATS.KeyFile},
		{"nats.replicas", &c.NATS.Replicas},
		{"forward", &c.Forward},
		{"events_ttl", &c.EventsTTL},
		{"stop_timeout", &c.StopTimeout},
		{"metrics.listen", &c.Metrics.Listen},
		{"log.level", &c.Log.Level},
		{"log.format", &c.Log.Format},
	}
	for _, name := range c.WebhookNames() {
		list = append(list, c.Webhooks[name].settings("webhooks."+name+".")...)
	}
	return list
}

func (w *Webhook) settings(prefix string) []setting {
	list := []setting{
		{"url", &w.URL},
		{"url_file", &w.URLFile},
		{"secrets", &w.Secrets},
		{"secrets_file", &w.SecretsFile},
		{"events", &w.Events},
		{"retry.max_attempts", &w.Retry.MaxAttempts},
		{"retry.base", (*Duration)(&w.Retry.Base)},
		{"retry.factor", &w.Retry.Factor},
		{"retry.max", (*Duration)(&w.Retry.Max)},
		{"retry.jitter", &w.Retry.Jitter},
		{"timeout", &w.Timeout},
		{"concurrency", &w.Concurrency},
		{"rate", &w.Rate},
		{"ordered", &w.Ordered},
		{"breaker.failures", &w.Breaker.Failures},
		{"breaker.cooldown", &w.Breaker.Cooldown},
		{"allow_private", &w.AllowPrivate},
	}
	for i := range list {
		list[i].key = prefix + list[i].key
	}
	return list
}

// Variable returns the environment variable that sets a key.
func Variable(key string) string {
	return "MILLBRIDGE_" + spelling.Capitals(key)
}

// Keys returns all keys that can be set, with "<name>" for the name of a webhook.
func Keys() []string {
	c := Default()
	c.Webhooks = map[string]*Webhook{"<name>": defaultWebhook()}
	var keys []string
	for _, s := range c.settings() {
		keys = append(keys, s.key)
	}
	return keys
}

// layer applies the values of one source. It remembers what it has set, so that a value and its _file twin replace
// each other from source to source but contradict each other within one.
type layer struct {
	config *Config
	set    map[string]string // key -> origin
	faults []error
}

func newLayer(c *Config) *layer { return &layer{config: c, set: map[string]string{}} }

func (l *layer) fault(origin, key, format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf("%s: %s: %s", origin, key, fmt.Sprintf(format, args...)))
}

// apply sets key from the given texts: one for a scalar, any number for a list.
func (l *layer) apply(origin, key string, values []string) {
	l.declareWebhook(key)
	for _, s := range l.config.settings() {
		if s.key != key {
			continue
		}
		if err := assign(s.field, values); err != nil {
			l.fault(origin, key, "%v", err)
			return
		}
		l.set[key] = origin
		l.config.origin[key] = origin
		return
	}
	l.fault(origin, "unknown key "+quote(key), "%s", suggest(key))
}

// declareWebhook makes room for the webhook that key belongs to.
func (l *layer) declareWebhook(key string) {
	rest, ok := strings.CutPrefix(key, "webhooks.")
	name, _, found := strings.Cut(rest, ".")
	if ok && found && name != "" && l.config.Webhooks[name] == nil {
		if l.config.Webhooks == nil {
			l.config.Webhooks = map[string]*Webhook{}
		}
		l.config.Webhooks[name] = defaultWebhook()
	}
}

// finish lets values set here replace _file twins of earlier sources, and the other way round.
func (l *layer) finish() []error {
	list := l.config.settings()
	byKey := map[string]setting{}
	for _, s := range list {
		byKey[s.key] = s
	}
	for _, s := range list {
		key := s.key
		twin, ok := byKey[key+"_file"]
		if !ok {
			continue
		}
		origin, value := l.set[key]
		_, file := l.set[twin.key]
		value, file = value && !isEmpty(s.field), file && !isEmpty(twin.field)
		switch {
		case value && file:
			l.fault(origin, key, "is set together with %s; keep one of them", twin.key)
		case value:
			clearField(twin.field)
			delete(l.config.origin, twin.key)
		case file:
			clearField(s.field)
			delete(l.config.origin, key)
		}
	}
	return l.faults
}

// suggest names the key that was probably meant.
func suggest(key string) string {
	best, distance := "", min(4, len(key)/2+1)
	for _, known := range Keys() {
		for i := range len(known) + 1 { // the key and the sections it is in
			if i < len(known) && known[i] != '.' {
				continue
			}
			if d := spelling.Distance(pattern(key), known[:i]); d < distance {
				best, distance = known[:i], d
			}
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "`millbridge config print` shows all keys"
}
