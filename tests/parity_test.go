package tests

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const parityDoc = "docs/parity.md"

// parityIDs are the behaviours that the page has to list.
func parityIDs() []string {
	var ids []string
	for _, part := range []struct {
		letter      string
		first, last int
	}{{"A", 1, 21}, {"B", 1, 25}, {"R", 1, 5}} {
		for n := part.first; n <= part.last; n++ {
			ids = append(ids, fmt.Sprintf("%s%d", part.letter, n))
		}
	}
	return ids
}

var (
	parityRow = regexp.MustCompile(`(?m)^\| ([ABR]\d+) \| (.+) \| (.+) \| (.+) \|$`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// TestParity keeps the page on other systems complete: each behaviour once, with places and tests that are there.
func TestParity(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, f := range sourceFiles(t) {
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() {
				known[fn.Name.Name] = true
			}
		}
	}
	listed := map[string]int{}
	for _, row := range parityRow.FindAllStringSubmatch(read(t, parityDoc), -1) {
		id, places, tests := row[1], quoted.FindAllStringSubmatch(row[3], -1), quoted.FindAllStringSubmatch(row[4], -1)
		listed[id]++
		if len(places) == 0 || len(tests) == 0 {
			t.Errorf("%s: names %d places and %d tests", id, len(places), len(tests))
		}
		for _, place := range places {
			if _, err := os.Stat(filepath.Join("..", place[1])); err != nil {
				t.Errorf("%s: names %s, which is not there", id, place[1])
			}
		}
		for _, test := range tests {
			if name, _, _ := strings.Cut(test[1], "/"); !known[name] {
				t.Errorf("%s: names %s, which is not there", id, test[1])
			}
		}
	}
	for _, id := range parityIDs() {
		if listed[id] != 1 {
			t.Errorf("%s is listed %d times", id, listed[id])
		}
		delete(listed, id)
	}
	for id := range listed {
		t.Errorf("%s is no id of a behaviour", id)
	}
}
