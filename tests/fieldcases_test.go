package tests

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the names of the tests into docs/field-cases.md")

const fieldCases = "docs/field-cases.md"

// caseTests finds the tests of each case by their names: "C05" -> "`TestC05_x` (router)", sorted.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	places := map[string]map[string]bool{} // test -> packages
	for _, f := range sourceFiles(t) {
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() && casePattern.MatchString(fn.Name.Name) {
				if places[fn.Name.Name] == nil {
					places[fn.Name.Name] = map[string]bool{}
				}
				places[fn.Name.Name][filepath.Dir(f.path)] = true
			}
		}
	}
	tests := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		in := strings.Join(slices.Sorted(maps.Keys(places[name])), ", ")
		number := casePattern.FindStringSubmatch(name)[1]
		tests[number] = append(tests[number], fmt.Sprintf("`%s` (%s)", name, in))
	}
	return tests
}

var casePattern = regexp.MustCompile(`^Test(C\d\d)_`)

// TestFieldCases compares the document with the tests there are. After adding one: go test ./tests -run FieldCases -update
func TestFieldCases(t *testing.T) {
	t.Parallel()
	tests := caseTests(t)
	var number string
	var out []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(read(t, fieldCases), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			number, _, _ = strings.Cut(title, " ")
		}
		if strings.HasPrefix(line, "- Tests:") {
			want := "- Tests: " + strings.Join(tests[number], ", ")
			if line != want && !*update {
				t.Errorf("%s: case %s says %q, want %q", fieldCases, number, line, want)
			}
			if len(tests[number]) == 0 {
				t.Errorf("case %s has no test", number)
			}
			line, seen[number] = want, true
		}
		out = append(out, line)
	}
	for i := 1; i <= 37; i++ {
		number := fmt.Sprintf("C%02d", i)
		if !seen[number] {
			t.Errorf("%s does not have case %s", fieldCases, number)
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", fieldCases), []byte(strings.Join(out, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
