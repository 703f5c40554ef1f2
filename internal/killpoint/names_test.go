package killpoint

import (
	"os"
	"regexp"
	"testing"
)

// The crash suite kills a process at each of Names, so none may be left out.
func TestNames_are_complete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[Name]bool)
	for _, n := range Names {
		seen[n] = true
	}
	declared := regexp.MustCompile(`(?m)^\t\w+ +Name = "(.*?)" +// .`).FindAllSubmatch(text, -1)
	for _, m := range declared {
		if !seen[Name(m[1])] {
			t.Errorf("%s is not among the names", m[1])
		}
	}
	if len(declared) != len(Names) || len(seen) != len(Names) {
		t.Errorf("%d places are declared, %d are listed, %d of them different", len(declared), len(Names), len(seen))
	}
}
