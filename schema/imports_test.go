package schema_test

import (
	"os/exec"
	"strings"
	"testing"
)

func TestPackage_imports_the_standard_library_only(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 1 || got[0] != "github.com/millbridge/millbridge/schema" {
		t.Errorf("outside the standard library: %v", got)
	}
}
