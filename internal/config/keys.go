package config

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/spelling"
	"github.com/millbridge/millbridge/schema"
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
		{"stock.tables", &c.Stock.Tables},
		{"stock.consumer_group", &c.Stock.ConsumerGroup},
		{"stock.topics", &c.Stock.Topics},
		{"stock.ordering_key", &c.Stock.OrderingKey},
		{"events_ttl", &c.EventsTTL},
		{"stop_timeout", &c.StopTimeout},
		{"metrics.listen", &c.Metrics.Listen},
		{"log.level", &c.Log.Level},
		{"log.format", &c.Log.Format},
	}
	list = append(list, c.receiveSettings()...)
	for _, name := range c.TargetNames() {
		list = append(list, c.Targets[name].settings(targetsPrefix+name+".")...)
	}
	return list
}

// Variable returns the environment variable that sets a key.
func Variable(key string) string {
	return "MILLBRIDGE_" + spelling.Capitals(key)
}

// Keys returns all keys that can be set, but for those of the types of targets; "<name>" stands for the name of a target
// or peer.
func Keys() []string {
	c := Default()
	c.Targets = map[string]*Target{"<name>": defaultTarget()}
	c.Receive.Peers = map[string]*Peer{"<name>": {}}
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

// apply sets key from the given texts: one for a scalar, any number for a list. For a block, inside may say where its parts
// are written.
func (l *layer) apply(origin, key string, values []string, inside map[string]string) {
	name, rest, ofTarget := splitTarget(key)
	if ofTarget && rest == "type" {
		if len(values) != 1 {
			l.fault(origin, key, "wants one value, not a list")
			return
		}
		l.setType(origin, name, values[0])
		return
	}
	if ofTarget && rest != "" {
		l.declareTarget(name)
	}
	if name, ok := peerOf(key); ok {
		l.declarePeer(name)
	}
	for _, s := range l.config.settings() {
		if s.key != key {
			continue
		}
		maps.DeleteFunc(l.config.place, func(place, _ string) bool { return strings.HasPrefix(place, key+".") }) // an earlier source's
		l.config.place[key] = origin
		maps.Copy(l.config.place, inside)
		if err := assign(s.field, values); err != nil {
			l.refuse(origin, key, err)
			return
		}
		l.set[key] = origin
		l.config.origin[key] = origin
		return
	}
	l.unknown(origin, key)
}

// unknown reports a key that nobody knows; not if it belongs to a type that is not known and is reported itself.
func (l *layer) unknown(origin, key string) {
	if name, _, ok := splitTarget(key); ok && l.config.Targets[name] != nil && l.config.Targets[name].wrongType {
		return
	}
	l.fault(origin, "unknown key "+quote(key), "%s", l.config.suggest(key))
}

// refuse reports why a key cannot be set, at the place inside a block where it is wrong.
func (l *layer) refuse(origin, key string, err error) {
	for _, err := range configgroup.Faults(err) {
		if at, ok := errors.AsType[*configgroup.BlockError](err); ok && at.Path != "" {
			place := key + "." + at.Path
			l.fault(l.config.near(place), schema.OneLine(place), "%v", at.Err)
			continue
		}
		l.fault(origin, key, "%v", err)
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
			delete(l.config.place, twin.key)
		case file:
			clearField(s.field)
			delete(l.config.origin, key)
			delete(l.config.place, key)
		}
	}
	return l.faults
}

// suggest names the key that was probably meant.
func (c *Config) suggest(key string) string {
	hint := "`millbridge config print` shows all keys"
	if name, _, ok := splitTarget(key); ok && c.Targets[name] != nil && c.Targets[name].own == nil {
		hint = targetsPrefix + name + ".type is not set, which brings keys"
	}
	best, distance := "", min(4, len(key)/2+1)
	for _, s := range append(c.settings(), setting{key: "targets"}, setting{key: "receive.peers"}) {
		known := s.key
		for i := range len(known) + 1 { // the key and the sections it is in
			if i < len(known) && known[i] != '.' {
				continue
			}
			if d := spelling.Distance(key, known[:i]); d < distance {
				best, distance = known[:i], d
			}
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return hint
}
