package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/targets"
	"github.com/millbridge/millbridge/schema"
)

// Target is a target of jobs, or a subscription to events, that runs from configuration.
type Target struct {
	Type        string   // of internal/targets
	Events      []string // subscribe to these instead of being a target of jobs
	Retry       Retry
	Timeout     Duration // of one attempt
	Concurrency int
	Rate        float64 // attempts a second at most, over all processes; 0 is no limit
	Ordered     bool    // keep the order of messages that share an ordering key
	Breaker     Breaker // when to stop calling what is down

	own       targets.Settings      // nil while the type is not known
	keys      []configgroup.Setting // of own
	files     []*string             // of own: names of files with secrets, beside keys; nil for what is no secret
	wrongType bool                  // it has a type that there is not
}

// Breaker says when calls of a system that is down stop, in all processes.
type Breaker struct {
	Failures     int      // in a row; 0 means never
	Cooldown     Duration // before one message is tried
	DisableAfter Duration // of nothing but failures; 0 means never
}

func defaultTarget() *Target {
	return &Target{Retry: Retry(schema.DefaultRetry), Timeout: Duration(30 * time.Second), Concurrency: 10, Breaker: Breaker{Cooldown: Duration(handlers.DefaultCooldown)}}
}

// Policy is the target's policy as the router takes it.
func (t *Target) Policy() handlers.Policy {
	return handlers.Policy{
		Retry: schema.RetryPolicy(t.Retry), Timeout: time.Duration(t.Timeout), Concurrency: t.Concurrency, Rate: t.Rate, Ordered: t.Ordered,
		Breaker: handlers.Breaker{Failures: t.Breaker.Failures, Cooldown: time.Duration(t.Breaker.Cooldown), DisableAfter: time.Duration(t.Breaker.DisableAfter)},
	}
}

// Open makes the target's handler. Whoever calls it closes what it returns with [targets.Close].
func (t *Target) Open(name string, log *slog.Logger) (handlers.Handler, error) {
	h, err := t.own.Open(targets.Env{Name: name, Timeout: time.Duration(t.Timeout), Logger: log})
	if err != nil {
		return nil, fmt.Errorf("targets.%s: %w", name, err)
	}
	return h, nil
}

// TargetNames returns the names of all targets and subscriptions, sorted.
func (c *Config) TargetNames() []string { return slices.Sorted(maps.Keys(c.Targets)) }

const targetsPrefix = "targets."

// splitTarget takes the name of a target off a key.
func splitTarget(key string) (name, rest string, ok bool) {
	below, ok := strings.CutPrefix(key, targetsPrefix)
	name, rest, _ = strings.Cut(below, ".")
	return name, rest, ok && name != ""
}

func (t *Target) settings(prefix string) []setting {
	list := []setting{
		{"type", &t.Type},
		{"events", &t.Events},
		{"retry.max_attempts", &t.Retry.MaxAttempts},
		{"retry.base", (*Duration)(&t.Retry.Base)},
		{"retry.factor", &t.Retry.Factor},
		{"retry.max", (*Duration)(&t.Retry.Max)},
		{"retry.jitter", &t.Retry.Jitter},
		{"timeout", &t.Timeout},
		{"concurrency", &t.Concurrency},
		{"rate", &t.Rate},
		{"ordered", &t.Ordered},
		{"breaker.failures", &t.Breaker.Failures},
		{"breaker.cooldown", &t.Breaker.Cooldown},
		{"breaker.disable_after", &t.Breaker.DisableAfter},
	}
	for i, s := range t.keys {
		list = append(list, setting{s.Key, s})
		if t.files[i] != nil {
			list = append(list, setting{s.Key + "_file", t.files[i]})
		}
	}
	for i := range list {
		list[i].key = prefix + list[i].key
	}
	return list
}

// declareTarget makes room for a target.
func (l *layer) declareTarget(name string) *Target {
	if l.config.Targets == nil {
		l.config.Targets = map[string]*Target{}
	}
	if l.config.Targets[name] == nil {
		l.config.Targets[name] = defaultTarget()
	}
	return l.config.Targets[name]
}

// setType gives a target its type, and with it the keys of the type. It comes before all other keys of the target.
func (l *layer) setType(origin, name, value string) {
	key := targetsPrefix + name + ".type"
	t := l.declareTarget(name)
	if l.set[key] == origin { // it was read ahead
		return
	}
	l.set[key] = origin
	if t.own != nil {
		if t.Type != value {
			l.fault(origin, key, "is %s, but %s already by %s", quote(value), t.Type, l.config.Origin(key))
		}
		return
	}
	kind, err := targets.Named(value)
	if err != nil {
		t.wrongType = true
		l.fault(origin, key, "is %s, %v", quote(value), err)
		return
	}
	own := kind.New()
	keys, err := configgroup.SettingsOf(own.Pointer())
	if err != nil {
		l.fault(origin, key, "%v", err)
		return
	}
	t.Type, t.own, t.keys, t.files = value, own, keys, make([]*string, len(keys))
	for i, k := range keys {
		if k.IsSecret() {
			t.files[i] = new(string)
		}
	}
	l.config.origin[key] = origin
}

// check reports what is wrong with a target.
func (t *Target) check(name string, fault func(key, format string, args ...any)) {
	bad := func(key, format string, args ...any) { fault(targetsPrefix+name+"."+key, format, args...) }
	if err := schema.CheckTarget(name); err != nil {
		fault(targetsPrefix+name, "%s is not a name: it must be a-z, 0-9, '-' and '_', starting with a letter or digit", quote(name))
	} else if strings.HasPrefix(name, "mb-") {
		fault(targetsPrefix+name, "names that start with mb- are ours")
	}
	if t.own == nil {
		_, err := targets.Named("")
		bad("type", "is missing; it %v", err)
	} else {
		t.checkOwn(bad)
	}
	if len(t.Events) > 0 {
		sub := handlers.Subscription{Name: "x", Events: t.Events, Handler: handlers.HandlerFunc(nil)}
		if err := sub.Validate(); err != nil {
			bad("events", "%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", "; "), `subscription "x": `))
		}
	}
	if err := schema.RetryPolicy(t.Retry).Validate(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			field, rest, _ := strings.Cut(line, " ")
			bad("retry."+field, "%s", rest)
		}
	}
	if t.Timeout <= 0 {
		bad("timeout", "must be more than 0")
	}
	if !(t.Rate >= 0 && t.Rate <= 1e6) {
		bad("rate", "must be between 0 (no limit) and 1000000")
	}
	if t.Breaker.Failures < 0 || t.Breaker.Failures > 1e6 {
		bad("breaker.failures", "must be between 0 (never) and 1000000")
	}
	if t.Breaker.Cooldown <= 0 {
		bad("breaker.cooldown", "must be more than 0")
	}
	if t.Breaker.DisableAfter < 0 {
		bad("breaker.disable_after", "must be 0 (never) or more")
	}
	if t.Concurrency < 1 || t.Concurrency > 1000 {
		bad("concurrency", "must be between 1 and 1000")
	}
}

// checkOwn reports what is missing among the type's own keys, or else what the type finds wrong with them.
func (t *Target) checkOwn(bad func(key, format string, args ...any)) {
	complete := true
	for i, k := range t.keys {
		if !k.Required || !k.IsEmpty() {
			continue
		}
		complete = false
		if file := t.files[i]; file == nil || *file == "" { // else it is read later
			bad(k.Key, "is missing")
		}
	}
	if !complete {
		return
	}
	if err := t.own.Validate(); err != nil {
		t.blame(bad, err)
	}
}

// blame reports what the type says is wrong, each line with the key that it begins with.
func (t *Target) blame(bad func(key, format string, args ...any), err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rest, ok := strings.Cut(strings.TrimPrefix(line, t.Type+": "), ": ")
		if ok && slices.ContainsFunc(t.keys, func(k configgroup.Setting) bool { return k.Key == key || strings.HasPrefix(key, k.Key+".") }) {
			bad(key, "%s", rest)
		} else {
			bad("type", "%s", line)
		}
	}
}

// secrets returns the texts that must not be shown.
func (t *Target) secrets() []string {
	var list []string
	for _, k := range t.keys {
		for _, s := range k.Reveal() {
			list = append(list, s)
			if strings.Contains(s, "://") {
				list = append(list, secretsOf(s)...)
			}
		}
	}
	return list
}

// shown is a value of a type's own key as it is printed.
func shown(s configgroup.Setting) any {
	v := s.Value()
	if raw, ok := v.(json.RawMessage); ok {
		var block any
		if err := json.Unmarshal(raw, &block); err != nil {
			return mask
		}
		return block
	}
	return v
}
