package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/config"
)

// TestDocs_handlers_quotes_what_is_compiled keeps the guide's code from going stale: each block stands in the example.
func TestDocs_handlers_quotes_what_is_compiled(t *testing.T) {
	t.Parallel()
	var sources []string
	for _, pattern := range []string{"../examples/target/*.go", "../examples/target/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, string(text))
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "docs/handlers.md"), -1)
	for _, b := range blocks {
		if !slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, b[1]) }) {
			t.Errorf("docs/handlers.md shows what is not in examples/target:\n%s", b[1])
		}
	}
	if len(blocks) < 8 {
		t.Errorf("docs/handlers.md has only %d blocks of code", len(blocks))
	}
}

// TestConfigGroups_stay_clear_of_our_own_variables keeps a target's settings from being taken for Millbridge's.
func TestConfigGroups_stay_clear_of_our_own_variables(t *testing.T) {
	t.Parallel()
	variables := []string{"MILLBRIDGE_CONFIG", "MILLBRIDGE_TARGETS"}
	for _, key := range config.Keys() {
		variables = append(variables, config.Variable(key))
	}
	for _, v := range variables {
		word, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(v, "MILLBRIDGE_")), "_")
		if !slices.Contains(configgroup.Reserved(), word) {
			t.Errorf("%s could be a setting of the target %q", v, word)
		}
	}
}
