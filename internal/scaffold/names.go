package scaffold

import (
	"errors"
	"fmt"
	"go/token"
	"go/types"
	"strings"
	"unicode"

	"github.com/millbridge/millbridge/schema"
)

// words splits a name at what cannot be in a Go identifier.
func words(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// taken are the names that the generated files import packages by.
var taken = map[string]bool{
	"bytes": true, "context": true, "errors": true, "fmt": true, "http": true, "httptest": true, "io": true, "json": true,
	"maps": true, "slices": true, "slog": true, "strings": true, "testing": true, "time": true, "url": true,
	"configgroup": true, "embedded": true, "handlers": true, "handlertest": true, "outbound": true, "publishers": true,
	"router": true, "saga": true, "schema": true, "targets": true, "main": true, "internal": true, "vendor": true, "testdata": true,
}

// packageName is the Go package of a target.
func packageName(target string) string {
	name := strings.Join(words(target), "")
	if unicode.IsDigit(rune(name[0])) {
		name = "t" + name
	}
	if taken[name] || token.IsKeyword(name) || types.Universe.Lookup(name) != nil {
		name += "target"
	}
	return name
}

// declared are the names that the generated package has besides those of its actions.
var declared = []string{"Target", "New", "Build", "Client", "HTTPClient", "NewHTTPClient", "Config", "LoadConfig", "Fake", "NewFake"}

// action is one action of a target.
type action struct {
	Name string // contact.update
	Go   string // ContactUpdate
}

// maxNames bounds target and action together: saga keys begin with both.
const maxNames = 150

// actionsOf finds a Go name for each action.
func actionsOf(target string, names []string) ([]action, error) {
	used := map[string]string{}
	for _, d := range declared {
		used[d] = "the package's own " + d
	}
	var list []action
	var faults []error
	for _, name := range names {
		if err := schema.CheckName(name); err != nil {
			faults = append(faults, fmt.Errorf("action: %w", err))
			continue
		}
		if n := len(target) + len(name); n > maxNames {
			faults = append(faults, fmt.Errorf("action %q: target and action together have %d characters, limit %d", name, n, maxNames))
			continue
		}
		base := goName(name)
		if used[base] != "" && !strings.HasPrefix(used[base], "action") {
			base += "Job"
		}
		for _, n := range []string{base, base + "Args", base + "Step"} {
			if other := used[n]; other != "" {
				faults = append(faults, fmt.Errorf("action %q: its Go name %s is that of %s", name, n, other))
			}
			used[n] = fmt.Sprintf("action %q", name)
		}
		list = append(list, action{Name: name, Go: base})
	}
	return list, errors.Join(faults...)
}

// goName is a name as an exported Go identifier.
func goName(name string) string {
	var b strings.Builder
	for _, w := range words(name) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	if s := b.String(); unicode.IsLetter(rune(s[0])) {
		return s
	}
	return "Do" + b.String()
}
