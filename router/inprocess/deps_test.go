package inprocess_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that uses only this queue links no broker, no database and nothing else from outside.
func TestLinksNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../../handlers/handlertest").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		first, _, _ := strings.Cut(dep, "/")
		switch {
		case strings.HasPrefix(dep, "github.com/millbridge/millbridge/"):
			own++
		case strings.Contains(first, ".") && first != "vendor" || dep == "database/sql":
			t.Errorf("the queue links %s", dep)
		}
	}
	if own < 4 {
		t.Errorf("the list of dependencies is not complete:\n%s", out)
	}
}
