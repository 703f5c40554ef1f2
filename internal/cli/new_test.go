package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goModule makes an empty Go module and returns a directory below its root.
func goModule(t *testing.T) (root, below string) {
	t.Helper()
	root = t.TempDir()
	below = filepath.Join(root, "cmd", "shop")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module example.com/shop\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root, below
}

func TestNew_handler_writes_and_check_compares(t *testing.T) {
	t.Parallel()
	root, below := goModule(t)
	would := call(t, "", nil, "new", "handler", "crm", "--dir", below, "--dry-run")
	if would.code != 0 || !strings.Contains(would.stdout, "would create   targets/crm/crm.go\n") {
		t.Error(would)
	}
	if _, err := os.Stat(filepath.Join(root, "targets")); !os.IsNotExist(err) {
		t.Errorf("a dry run has written something: %v", err)
	}
	r := call(t, "", nil, "new", "handler", "crm", "--dir", below)
	if r.code != 0 {
		t.Fatal(r)
	}
	contains(t, r.stdout, "create   targets/targets.go\n", "go get github.com/millbridge/millbridge", "targets.Build()")
	if _, err := os.Stat(filepath.Join(root, "targets/crm/crm_test.go")); err != nil {
		t.Error(err)
	}
	r = call(t, "", nil, "new", "handler", "crm", "--dir", below)
	if r.code != 1 {
		t.Error(r)
	}
	contains(t, r.stderr, "targets/crm/client.go is there already", "Try: nothing was written")
	if r = call(t, "", nil, "new", "handler", "ledger", "--fake", "--dir", below, "--json"); len(r.objects(t)) != 10 {
		t.Error(r)
	}
	contains(t, r.stdout, `{"version":1,"path":"targets/targets.go","what":"extend","dry_run":false}`)

	if r = call(t, "", nil, "new", "--check", "--dir", below); r.code != 0 || r.stdout != "nothing has drifted\n" {
		t.Error(r)
	}
	if err := os.Remove(filepath.Join(root, "docs/known-gaps.md")); err != nil {
		t.Fatal(err)
	}
	r = call(t, "", nil, "new", "--check", "--dir", below)
	if r.code != 3 {
		t.Error(r)
	}
	contains(t, r.stdout, "ledger: docs/known-gaps.md: its client is a fake")
	contains(t, r.stderr, "Error: 1 difference", "Try: ")
	if r = call(t, "", nil, "new", "--check", "--dir", below, "--json"); r.code != 3 || r.objects(t)[0]["target"] != "ledger" {
		t.Error(r)
	}
}

func TestNew_says_what_it_needs(t *testing.T) {
	t.Parallel()
	root, below := goModule(t)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "needs to know what to do", []string{"new"}},
		{2, "needs the name of a target", []string{"new", "handler"}},
		{1, `target: "Bad.Name" must be`, []string{"new", "handler", "Bad.Name", "--dir", below}},
		{1, "there is no go.mod here or above", []string{"new", "handler", "crm", "--dir", filepath.Dir(root)}},
		{1, "name the directory of a Go module with --dir", []string{"new", "handler", "crm", "--dir", filepath.Join(root, "none")}},
		{1, "makes a registry", []string{"new", "--check", "--dir", below}},
	} {
		if r := call(t, "", nil, c.args...); r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: want %q in %s", c.args, c.want, r)
		}
	}
}
