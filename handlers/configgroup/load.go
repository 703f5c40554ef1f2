package configgroup

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/internal/spelling"
	"github.com/millbridge/millbridge/schema"
)

// An Option changes where settings are looked for.
type Option func(*group)

// Alias adds another style of names: with the prefix "SHOP_CRM" the field BaseURL is also read from SHOP_CRM_BASE_URL. A
// setting must not have two values. What else begins with the prefix is nobody's business here.
func Alias(prefix string) Option {
	return func(g *group) { g.aliases = append(g.aliases, strings.TrimSuffix(prefix, "_")+"_") }
}

// Prefix replaces MILLBRIDGE_<TARGET>, for a target whose name is a word of Millbridge's own configuration.
func Prefix(prefix string) Option {
	return func(g *group) { g.prefix = strings.TrimSuffix(prefix, "_") + "_" }
}

// Others names further targets whose variables begin with this group's prefix, such as "crm-eu" beside "crm", so that
// they are not taken for misspelt ones.
func Others(targets ...string) Option {
	return func(g *group) { g.others = append(g.others, targets...) }
}

// Environ replaces [os.Environ], for tests.
func Environ(environ []string) Option { return func(g *group) { g.environ = environ } }

// group is what a target's variables have in common.
type group struct {
	prefix  string
	aliases []string
	others  []string
	environ []string
}

func prefixOf(target string) string {
	return "MILLBRIDGE_" + spelling.Capitals(target) + "_"
}

// reserved are the first words of Millbridge's own variables.
var reserved = []string{
	"config", "data", "database", "events", "forward", "log", "metrics", "nats", "policies", "prefix", "receive", "stock", "stop", "targets",
}

// Reserved returns the names that no group may have without [Prefix]: variables of theirs are Millbridge's own.
func Reserved() []string { return slices.Clone(reserved) }

func newGroup(target string, opts []Option) (group, error) {
	var g group
	for _, opt := range opts {
		opt(&g)
	}
	if g.prefix != "" {
		return g, nil
	}
	if err := schema.CheckTarget(target); err != nil {
		return g, fmt.Errorf("target %q: %w", schema.OneLine(target), err)
	}
	g.prefix = prefixOf(target)
	for _, word := range reserved {
		if strings.HasPrefix(g.prefix, prefixOf(word)) {
			return g, fmt.Errorf("target %q: variables that begin with %s are Millbridge's own; give the group another prefix", target, prefixOf(word))
		}
	}
	return g, nil
}

// Load reads the settings of a target into a T, a struct. The error joins everything that is wrong and is permanent; T is
// returned even then, with what could be read.
func Load[T any](target string, opts ...Option) (T, error) {
	var out T
	g, err := newGroup(target, opts)
	if err != nil {
		return out, schema.WithKind(schema.Permanent, err)
	}
	fields, err := fieldsOf(reflect.TypeFor[T]())
	if err != nil {
		return out, schema.WithKind(schema.Permanent, fmt.Errorf("settings of target %q: %w", target, err))
	}
	if g.environ == nil {
		g.environ = os.Environ()
	}
	l := loader{group: g, env: map[string]string{}, known: map[string]bool{}}
	for _, entry := range g.environ {
		if name, value, _ := strings.Cut(entry, "="); value != "" {
			l.env[name] = value
		}
	}
	for _, f := range fields {
		l.read(f, reflect.ValueOf(&out).Elem().FieldByIndex(f.index))
	}
	l.unknown()
	if len(l.faults) == 0 {
		if v, ok := any(&out).(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				l.faults = append(l.faults, fmt.Errorf("settings of target %q: %w", target, err))
			}
		}
	}
	return out, schema.WithKind(schema.Permanent, errors.Join(l.faults...))
}

type loader struct {
	group
	env    map[string]string
	known  map[string]bool
	faults []error
}

func (l *loader) fault(name, format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
}

// read sets one field from the variables it has.
func (l *loader) read(f field, into reflect.Value) {
	text, name := f.def, ""
	for _, prefix := range append([]string{l.prefix}, l.aliases...) {
		for _, n := range f.names(prefix) {
			l.known[n] = true
			value, ok := l.env[n]
			if !ok {
				continue
			}
			if strings.HasSuffix(n, fileSuffix) && f.secret() {
				var err error
				if value, err = f.readSecret(value); err != nil {
					l.fault(n, "%w", err)
					return
				}
			}
			if name != "" && text != value {
				l.fault(name, "is set together with %s; keep one of them", n)
				return
			}
			text, name = value, n
		}
	}
	switch {
	case name == "" && f.required:
		hint := ""
		if f.secret() {
			hint = ", and so is " + l.prefix + f.name + fileSuffix
		}
		l.fault(l.prefix+f.name, "is missing%s", hint)
	case text != "":
		for _, err := range Faults(parse(into, text)) {
			l.fault(name, "%w", err)
		}
	}
}

// unknown finds variables of the group that nobody reads.
func (l *loader) unknown() {
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, l.prefix) || l.known[name] || slices.ContainsFunc(l.others, func(target string) bool {
			return len(prefixOf(target)) > len(l.prefix) && strings.HasPrefix(name, prefixOf(target))
		}) {
			continue
		}
		var own []string
		for known := range l.known {
			if strings.HasPrefix(known, l.prefix) {
				own = append(own, known)
			}
		}
		slices.Sort(own)
		switch meant := spelling.Nearest(name, own); {
		case meant != "":
			l.fault(name, "is not known; did you mean %s?", meant)
		case len(own) == 0:
			l.fault(name, "is not known; the group has no settings")
		default:
			l.fault(name, "is not known; there are %s", strings.Join(own, ", "))
		}
	}
}

// maxFile is far more than any secret has.
const maxFile = 1 << 20

// readSecrets returns the lines of a file that are not blank.
func readSecrets(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' || r == '\r' })
	return slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" }), nil
}

// readSecret returns what stands in the file of a secret, or of a list of them, as a variable has it.
func (f field) readSecret(file string) (string, error) {
	lines, err := readSecrets(file)
	switch {
	case err != nil:
		return "", err
	case f.list() && len(lines) > 0:
		return strings.Join(lines, ","), nil
	case len(lines) != 1 || f.list():
		return "", fmt.Errorf("%s has %d lines, want 1 with the secret", file, len(lines))
	}
	return lines[0], nil
}
