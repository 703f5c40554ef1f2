package publishers_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A service that only publishes links the database's driver that it uses, and no broker, other database or router.
func TestLinksNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		with   []string // packages of a service
		refuse []string // parts of import paths it must not get
	}{
		{[]string{"../publishers"}, []string{"nats", "sqlite", "pgx", "millbridge/router", "millbridge/handlers", "millbridge/internal"}},
		{[]string{"../publishers", "../schema/postgres"}, []string{"nats", "sqlite", "millbridge/router", "millbridge/handlers", "millbridge/internal"}},
		{[]string{"../publishers", "../schema/sqlite"}, []string{"nats", "pgx", "modernc", "millbridge/router", "millbridge/handlers"}},
	} {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, test.with...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			own := strings.TrimPrefix(dep, "github.com/millbridge/millbridge/schema/")
			for _, part := range test.refuse {
				if strings.Contains(dep, part) && own == dep {
					t.Errorf("%v link %s", test.with, dep)
				}
			}
		}
		if !strings.Contains(string(out), "watermill-sql") {
			t.Errorf("%v: the list of dependencies is not complete:\n%s", test.with, out)
		}
	}
}
