package tests

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/internal/targets"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keyPattern finds the rows of tables of keys: the key, in some its type, and its default.
var keyPattern = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:(?:bool|string|int|float64|url|duration|secrets?|list|block|file) \\| )?(?:`([^`]*)`|required)? *\\| ")

// keysIn returns the keys that a document's table of keys lists, with their defaults.
func keysIn(t *testing.T, doc string) map[string]string {
	t.Helper()
	keys := map[string]string{}
	_, table, _ := strings.Cut(read(t, doc), "\n| Key |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range keyPattern.FindAllStringSubmatch(table, -1) {
		keys[m[1]] = m[2]
	}
	return keys
}

func compareKeys(t *testing.T, doc string, known map[string]string) {
	t.Helper()
	listed := keysIn(t, doc)
	for key, want := range known {
		if got, ok := listed[key]; !ok {
			t.Errorf("%s does not have %s", doc, key)
		} else if got != want {
			t.Errorf("%s says that %s is %q by default, it is %q", doc, key, got, want)
		}
	}
	for key := range listed {
		if _, ok := known[key]; !ok {
			t.Errorf("%s has %s, which is no key", doc, key)
		}
	}
}

func TestDocs_configuration_lists_every_key_with_its_default(t *testing.T) {
	t.Parallel()
	// A target's defaults are known once there is one.
	c, err := config.Load(config.Source{Sets: []config.Set{
		{Flag: "--set", Key: "targets.x.type", Value: "webhook"},
		{Flag: "--set", Key: "targets.x.url", Value: "https://example.com/"},
		{Flag: "--set", Key: "receive.listen", Value: ":8443"},
		{Flag: "--set", Key: "receive.origin", Value: "here"},
		{Flag: "--set", Key: "receive.peers.x.allow", Value: "jobs.>"},
		{Flag: "--set", Key: "receive.peers.x.secrets", Value: "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all, known := config.Keys(), map[string]string{}
	for _, v := range c.Values() {
		key := strings.Replace(v.Key, "targets.x.", "targets.<name>.", 1)
		key = strings.Replace(key, "receive.peers.x.", "receive.peers.<name>.", 1)
		if !slices.Contains(all, key) { // the type's own
			continue
		}
		known[key] = fmt.Sprint(v.Value)
		if known[key] == "[]" || v.Origin == "flag --set" {
			known[key] = ""
		}
	}
	compareKeys(t, "docs/configuration.md", known)
}

// TestDocs_targets_list_every_setting_of_their_type keeps the pages of the types up to date, and their list complete.
func TestDocs_targets_list_every_setting_of_their_type(t *testing.T) {
	t.Parallel()
	list := read(t, "docs/targets.md")
	for _, kind := range targets.All() {
		page := "targets/" + kind.Name + ".md"
		if !strings.Contains(list, "]("+page+")") {
			t.Errorf("docs/targets.md does not lead to %s", page)
		}
		settings, err := configgroup.SettingsOf(kind.New().Pointer())
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		known := map[string]string{}
		for _, s := range settings {
			known[s.Key] = s.Default
			if s.IsSecret() {
				known[s.Key+"_file"] = ""
			}
		}
		compareKeys(t, "docs/"+page, known)
	}
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	codePattern = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

func TestDocs_links_lead_somewhere(t *testing.T) {
	t.Parallel()
	checked := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Errorf("only %d links were checked", checked)
	}
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+[A-Za-z0-9_]*)")

// TestDocs_tests_exist keeps the documents from naming tests that are gone.
func TestDocs_tests_exist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, f := range sourceFiles(t) {
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() {
				known[fn.Name.Name] = true
			}
		}
	}
	named := 0
	for _, doc := range []string{"docs/guarantees.md", "docs/operations.md", "docs/reliability.md", fieldCases} {
		for _, m := range testName.FindAllStringSubmatch(read(t, doc), -1) {
			named++
			if !known[m[1]] {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the documents name only %d tests", named)
	}
}

// TestDocs_each_promise_has_a_test keeps the guarantees from promising what no test shows.
func TestDocs_each_promise_has_a_test(t *testing.T) {
	t.Parallel()
	sections := strings.Split(read(t, "docs/guarantees.md"), "\n### ")[1:]
	for _, s := range sections {
		title, body, _ := strings.Cut(s, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		if _, tests, ok := strings.Cut(body, "\n- Tests:"); !ok || !testName.MatchString(tests) {
			t.Errorf("docs/guarantees.md names no test for %q", title)
		}
	}
	if len(sections) < 8 {
		t.Errorf("docs/guarantees.md has only %d promises", len(sections))
	}
}

// TestReadme_shows_the_quickstart compares the README's program with the one that is compiled and run.
func TestReadme_shows_the_quickstart(t *testing.T) {
	t.Parallel()
	_, after, ok := strings.Cut(read(t, "README.md"), "```go\n")
	shown, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("README.md shows no program")
	}
	_, after, ok = strings.Cut(read(t, "examples/quickstart/main.go"), "func quickstart(ctx context.Context, dir string) {\n")
	body, _, closed := strings.Cut(after, "\n}\n")
	if !ok || !closed {
		t.Fatal("examples/quickstart/main.go has no function quickstart")
	}
	var want strings.Builder
	for line := range strings.SplitSeq(body, "\n") {
		want.WriteString(strings.TrimPrefix(line, "\t") + "\n")
	}
	if shown != want.String() {
		t.Errorf("README.md shows\n%s\nexamples/quickstart has\n%s", shown, want.String())
	}
	lines := 0
	for line := range strings.SplitSeq(shown, "\n") {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 25 {
		t.Errorf("the program has %d lines, more than a reader takes in at a glance", lines)
	}
}
