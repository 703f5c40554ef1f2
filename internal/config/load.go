package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/internal/spelling"
)

// maxFile is the largest file that is read; both the configuration and secrets are far smaller.
const maxFile = 1 << 20

// Set is a value given by a flag.
type Set struct {
	Flag  string // as the user wrote it, for messages
	Key   string
	Value string // a list is separated by commas
}

// Source says where to look.
type Source struct {
	File   string                   // read this file; empty reads [FileName] if it exists
	Getenv func(name string) string // the environment; an empty variable counts as not set
	// Environ lists the environment as [os.Environ] does; with it, variables of targets that set nothing are errors.
	Environ func() []string
	Sets    []Set // flags, in the order given
	// DatabaseAlone says that NATS is not asked for anything: database.url may be set without nats.url.
	DatabaseAlone bool
}

// Load reads the configuration from all its sources and checks it. The error joins everything that is wrong; the
// configuration is returned even then, so that messages about it can be masked with its secrets.
func Load(src Source) (*Config, error) {
	c := Default()
	var faults []error
	name, optional := src.File, false
	if name == "" && src.Getenv != nil {
		name = src.Getenv("MILLBRIDGE_CONFIG")
	}
	if name == "" {
		name, optional = FileName, true
	}
	data, err := readFile(name)
	switch {
	case err == nil:
		faults = append(faults, c.applyYAML(name, data)...)
	case optional && errors.Is(err, os.ErrNotExist):
	default:
		faults = append(faults, err)
	}
	if src.Getenv != nil {
		faults = append(faults, c.applyEnvironment(src.Getenv)...)
	}
	if src.Environ != nil {
		faults = append(faults, c.misspelt(src.Environ())...)
	}
	faults = append(faults, c.applyFlags(src.Sets)...)
	faults = append(faults, c.readSecrets()...)
	if len(faults) == 0 {
		faults = c.check(src.DatabaseAlone)
	}
	return &c, errors.Join(faults...)
}

// Parse reads a configuration from the text of a file alone and checks it, without reading the files it names.
func Parse(name string, data []byte) (*Config, error) {
	c := Default()
	faults := c.applyYAML(name, data)
	if len(faults) == 0 {
		faults = c.check(false)
	}
	return &c, errors.Join(faults...)
}

func (c *Config) applyEnvironment(getenv func(string) string) []error {
	l := newLayer(c)
	for name := range strings.SplitSeq(getenv("MILLBRIDGE_TARGETS"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			l.declareTarget(name)
			l.declared(targetsPrefix+name, "MILLBRIDGE_TARGETS")
		}
	}
	for name := range strings.SplitSeq(getenv("MILLBRIDGE_RECEIVE_PEERS"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			l.declarePeer(name)
			l.declared(peersPrefix+name, "MILLBRIDGE_RECEIVE_PEERS")
		}
	}
	for _, name := range c.TargetNames() { // the type first: it brings keys
		key := targetsPrefix + name + ".type"
		if value := getenv(Variable(key)); value != "" {
			l.apply("environment "+Variable(key), key, []string{value}, nil)
		}
	}
	for _, s := range c.settings() {
		if value := getenv(Variable(s.key)); value != "" && l.set[s.key] == "" {
			l.apply("environment "+Variable(s.key), s.key, split(s.field, value), nil)
		}
	}
	return l.finish()
}

// declared notes which variable names a section, unless it is in the file.
func (l *layer) declared(section, variable string) {
	if l.config.place[section] == "" {
		l.config.place[section] = "environment " + variable
	}
}

// misspelt finds variables of targets and peers that set nothing, or more than one thing.
func (c *Config) misspelt(environ []string) []error {
	keys := map[string][]string{}
	for _, s := range c.settings() {
		keys[Variable(s.key)] = append(keys[Variable(s.key)], s.key)
	}
	known := slices.Sorted(maps.Keys(keys))
	var sections []string
	for name := range c.Targets {
		sections = append(sections, targetsPrefix+name)
	}
	for name := range c.Receive.Peers {
		sections = append(sections, peersPrefix+name)
	}
	var faults []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		ofTarget, ofPeer := strings.HasPrefix(name, Variable(targetsPrefix)), strings.HasPrefix(name, Variable(peersPrefix))
		if value == "" || !ofTarget && !ofPeer {
			continue
		}
		named := slices.ContainsFunc(sections, func(section string) bool { return strings.HasPrefix(name, Variable(section)+"_") })
		meant := spelling.Nearest(name, known)
		switch {
		case len(keys[name]) > 1:
			faults = append(faults, fmt.Errorf("environment %s: is the variable of %s; set them in the file", name, strings.Join(keys[name], " and of ")))
		case len(keys[name]) == 1:
		case meant != "":
			faults = append(faults, fmt.Errorf("environment %s: is not known; did you mean %s?", name, meant))
		case named:
			faults = append(faults, fmt.Errorf("environment %s: is not known; `millbridge config print` shows all keys", name))
		case ofPeer:
			faults = append(faults, fmt.Errorf("environment %s: belongs to no peer; one that is not in the file is named in MILLBRIDGE_RECEIVE_PEERS", name))
		default:
			faults = append(faults, fmt.Errorf("environment %s: belongs to no target; one that is not in the file is named in MILLBRIDGE_TARGETS", name))
		}
	}
	return faults
}

func (c *Config) applyFlags(sets []Set) []error {
	l := newLayer(c)
	isType := func(set Set) bool { _, rest, ok := splitTarget(set.Key); return ok && rest == "type" }
	ordered := slices.Clone(sets)
	slices.SortStableFunc(ordered, func(a, b Set) int { // the types first: they bring keys
		switch {
		case isType(a) == isType(b):
			return 0
		case isType(a):
			return -1
		}
		return 1
	})
	for _, set := range ordered {
		values := []string{set.Value}
		for _, s := range c.settings() {
			if s.key == set.Key {
				values = split(s.field, set.Value)
			}
		}
		l.apply("flag "+set.Flag, set.Key, values, nil)
	}
	return l.finish()
}

// split takes a list apart at its commas.
func split(field any, value string) []string {
	if !isList(field) {
		return []string{value}
	}
	var values []string
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			values = append(values, v)
		}
	}
	return values
}

// readSecrets fills in the values whose _file twin is set.
func (c *Config) readSecrets() []error {
	l := newLayer(c)
	byKey := map[string]setting{}
	for _, s := range c.settings() {
		byKey[s.key] = s
	}
	for _, s := range c.settings() {
		target, ok := byKey[strings.TrimSuffix(s.key, "_file")]
		file, isFile := s.field.(*string)
		if !ok || !isFile || target.key == s.key || *file == "" {
			continue
		}
		data, err := readFile(*file)
		if err != nil {
			l.fault(c.Origin(s.key), s.key, "%v", err)
			continue
		}
		lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' || r == '\r' })
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
		if isList(target.field) && len(lines) == 0 { // else what should be signed would not be
			l.fault(c.Origin(s.key), s.key, "%s is empty", *file)
			continue
		}
		if !isList(target.field) && len(lines) != 1 {
			l.fault(c.Origin(s.key), s.key, "%s has %d lines, want 1", *file, len(lines))
			continue
		}
		if err := assign(target.field, lines); err != nil {
			l.fault(c.Origin(s.key), s.key, "%v", err)
		}
		c.origin[target.key] = "file " + *file
	}
	return l.faults
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return data, nil
}
