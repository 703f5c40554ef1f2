package scaffold_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/scaffold"
)

// newModule makes a module of somebody who uses the packages of this checkout.
func newModule(t *testing.T) scaffold.Module {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	mod := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(ours), "module example.com/acme/shop/v2")
	mod += "\nrequire " + scaffold.Ours + " v0.0.0\n\nreplace " + scaffold.Ours + " => " + checkout + "\n"
	dir := t.TempDir()
	put(t, dir, "go.mod", mod)
	put(t, dir, "go.sum", string(sums))
	m, err := scaffold.FindModule(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Path != "example.com/acme/shop/v2" || !m.Requires {
		t.Fatalf("found the module %+v", m)
	}
	return m
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, m scaffold.Module, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func generate(t *testing.T, m scaffold.Module, opts scaffold.Options) []string {
	t.Helper()
	changes, err := scaffold.Plan(m, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := scaffold.Apply(m, changes); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range changes {
		list = append(list, c.What+" "+c.Path)
	}
	return list
}

func check(t *testing.T, m scaffold.Module) []string {
	t.Helper()
	found, err := scaffold.Check(m)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range found {
		list = append(list, d.Target+" "+d.File+" "+d.What)
	}
	return list
}

// goCommand runs the go command in the module, without the network.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// two are a target over HTTP and one with a fake client; their names are hard to make Go of.
var two = []scaffold.Options{
	{Target: "crm", Actions: []string{"contact.update", "contact.delete-all", "new"}},
	{Target: "2nd-errors", Actions: []string{"send"}, Fake: true},
}

func TestGenerated_module_compiles_and_passes_its_tests(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	for _, opts := range two {
		generate(t, m, opts)
	}
	goCommand(t, m.Root, "test", "-vet=all", "./...") // go vet in the same go
	tools := exec.CommandContext(t.Context(), "go", "tool", "-modfile=internal/tools/go.mod", "gofumpt", "-l", m.Root)
	tools.Dir = "../.."
	if out, err := tools.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofumpt: %v\n%s", err, out)
	}
	if found := check(t, m); len(found) > 0 {
		t.Errorf("what was just generated has drifted: %q", found)
	}
}

func TestPlan_extends_what_is_there(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	first := generate(t, m, two[0])
	if want := "create targets/crm/crm.go"; first[0] != want {
		t.Errorf("first is %q, want %q", first[0], want)
	}
	put(t, m.Root, "targets/targets.go", strings.Replace(get(t, m, "targets/targets.go"), "return list, nil", "return list, nil // by hand", 1))
	second := strings.Join(generate(t, m, two[1]), "\n")
	for _, want := range []string{"extend targets/targets.go", "extend docs/targets.md", "create docs/known-gaps.md", "create targets/t2nderrors/fake.go"} {
		if !strings.Contains(second, want) {
			t.Errorf("%q is not in\n%s", want, second)
		}
	}
	registry := get(t, m, "targets/targets.go")
	for _, want := range []string{
		"\"example.com/acme/shop/v2/targets/crm\"\n\t\"example.com/acme/shop/v2/targets/t2nderrors\"\n)",
		"{\n\t\"2nd-errors\": t2nderrors.Build,\n\t\"crm\":        crm.Build,\n}", "// by hand",
	} {
		if !strings.Contains(registry, want) {
			t.Errorf("%q is not in\n%s", want, registry)
		}
	}
	if page := get(t, m, "docs/targets.md"); !strings.Contains(page, "\n## crm\n") || !strings.Contains(page, "\n## 2nd-errors\n") || !strings.Contains(page, "`SHOP_CRM_TOKEN_FILE`") {
		t.Errorf("docs/targets.md is\n%s", page)
	}
}

func TestPlan_registry_in_other_shapes(t *testing.T) {
	t.Parallel()
	const head = "package targets\n\n"
	const builders = "map[string]func() (handlers.Target, error)"
	for name, src := range map[string]string{
		"empty":      head + "import \"x.example/handlers\"\n\nvar builders = " + builders + "{}\n",
		"one line":   head + "import (\n\t\"x.example/handlers\"\n\tab \"x.example/y\"\n)\n\nvar builders = " + builders + "{\"ab\": ab.Build}\n",
		"no imports": head + "var builders = map[string]any{}\n",
		"last":       head + "import (\n\t\"x.example/handlers\"\n\n\t\"example.com/acme/shop/v2/targets/ab\"\n)\n\nvar builders = " + builders + "{\n\t\"ab\": ab.Build, // first\n}\n",
	} {
		m := newModule(t)
		put(t, m.Root, "targets/targets.go", src)
		generate(t, m, two[0])
		got := get(t, m, "targets/targets.go")
		for _, want := range []string{"\"example.com/acme/shop/v2/targets/crm\"", "\"crm\": crm.Build,\n"} {
			if strings.Count(got, want) != 1 {
				t.Errorf("%s: %q is not in\n%s", name, want, got)
			}
		}
	}
	for name, src := range map[string]string{
		"builders": head + "var builders = build()\n", "is not Go": "package\n", "is that of another package": head + "import \"x.example/crm\"\n\nvar builders = map[string]any{\"x\": crm.X}\n",
	} {
		m := newModule(t)
		put(t, m.Root, "targets/targets.go", src)
		if _, err := scaffold.Plan(m, two[0]); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlan_refuses_by_name_what_is_there(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	generate(t, m, two[1])
	put(t, m.Root, "targets/t2nderrors/client.go", "package t2nderrors // mine")
	_, err := scaffold.Plan(m, two[1])
	if !errors.Is(err, scaffold.ErrExists) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"targets/t2nderrors/client.go", "targets/t2nderrors/fake.go", "targets/targets.go: the target \"2nd-errors\"",
		"docs/targets.md: the section", "docs/known-gaps.md: the section", "docs/decisions/target-2nd-errors.md",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	forced := two[1]
	forced.Force = true
	for _, line := range generate(t, m, forced) {
		if !strings.HasPrefix(line, scaffold.Replace+" ") {
			t.Errorf("forced: %s", line)
		}
	}
	if text := get(t, m, "targets/t2nderrors/client.go"); strings.Contains(text, "mine") {
		t.Error("the file was not replaced")
	}
	if n := strings.Count(get(t, m, "targets/targets.go"), "t2nderrors.Build"); n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestPlan_refuses_names_that_cannot_be(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	for _, c := range []struct {
		target  string
		actions []string
		want    string
	}{
		{"Bad.Name", []string{"a"}, `target: "Bad.Name"`},
		{"mb-x", []string{"a"}, "are ours"},
		{"crm", []string{"A b"}, `name: "A b"`},
		{"crm", []string{"a.b", "a-b"}, "its Go name AB is that of action \"a.b\""},
		{"crm", []string{"x", "x.args"}, "XArgs"},
		{"crm", []string{strings.Repeat("a", 150)}, "limit 150"},
	} {
		_, err := scaffold.Plan(m, scaffold.Options{Target: c.target, Actions: c.actions})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.target, c.actions, err, c.want)
		}
	}
	if _, err := scaffold.FindModule(filepath.Dir(m.Root)); !errors.Is(err, scaffold.ErrNoModule) {
		t.Errorf("outside of any module: %v", err)
	}
	if _, err := scaffold.Check(m); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a registry: %v", err)
	}
}

// TestPlan_variables sees to it that the variables of two groups are told apart.
func TestPlan_variables(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	generate(t, m, scaffold.Options{Target: "crm-eu", Actions: []string{"send"}})
	generate(t, m, scaffold.Options{Target: "crm", Actions: []string{"send"}})
	if src := get(t, m, "targets/crm/config.go"); !strings.Contains(src, `configgroup.Others("crm-eu")`) {
		t.Errorf("config.go is\n%s", src)
	}
	generate(t, m, scaffold.Options{Target: "nats-log", Actions: []string{"send"}})
	if src := get(t, m, "targets/natslog/config.go"); !strings.Contains(src, `configgroup.Prefix("SHOP_NATS_LOG")`) {
		t.Errorf("config.go is\n%s", src)
	}
	if found := check(t, m); len(found) > 0 {
		t.Errorf("drift: %q", found)
	}
	generate(t, m, scaffold.Options{Target: "crm-us", Actions: []string{"send"}})
	if found := check(t, m); len(found) != 1 || !strings.Contains(found[0], `configgroup.Others("crm-us")`) {
		t.Errorf("drift: %q", found)
	}
}

func TestCheck_finds_each_drift(t *testing.T) {
	t.Parallel()
	m := newModule(t)
	for _, opts := range two {
		generate(t, m, opts)
	}
	if found := check(t, m); len(found) > 0 {
		t.Fatalf("what was just generated has drifted: %q", found)
	}
	const page, registry = "docs/targets.md", "targets/targets.go"
	for _, c := range []struct {
		file, old, new string
		want           string
	}{
		{page, "## crm\n", "## erp\n", `crm docs/targets.md has no section "crm"`},
		{page, "## crm\n", "## erp\n", `erp docs/targets.md the section "erp" is about no registered target`},
		{page, "| `contact.update` |", "| `contact.up` |", "crm docs/targets.md the action contact.update is missing"},
		{page, "| `contact.update` |", "| `contact.up` |", "crm docs/targets.md the action contact.up is not in the code"},
		{page, "| `MILLBRIDGE_CRM_BASE_URL`", "| `MILLBRIDGE_CRM_URL`", "crm docs/targets.md the variable MILLBRIDGE_CRM_BASE_URL is missing"},
		{page, "| `MILLBRIDGE_CRM_BASE_URL`", "| `MILLBRIDGE_CRM_URL`", "crm docs/targets.md the variable MILLBRIDGE_CRM_URL is not in the code"},
		{"targets/crm/config.go", "`default:\"20s\" doc", "`env:\"WAIT\" doc", "crm docs/targets.md the variable MILLBRIDGE_CRM_WAIT is missing"},
		{registry, "\t\"crm\":        crm.Build,\n", "", "crm targets/targets.go the package targets/crm is not registered"},
		{registry, "\"crm\": ", "\"erp\": ", `erp targets/targets.go is registered as "erp", and its package calls it "crm"`},
		{"targets/crm/crm_test.go", "", "package crm_test\n", "crm targets/crm has no test"},
		{"targets/crm/crm_test.go", "ContactUpdate", "ContactChange", "crm targets/crm no test names the job ContactUpdate"},
		{"docs/known-gaps.md", "", "# Known gaps\n", `2nd-errors docs/known-gaps.md its client is a fake, and no section`},
		{"docs/known-gaps.md", "## 2nd-errors", "## crm\n\n## 2nd-errors", "crm docs/known-gaps.md is said to be a fake, and is none"},
		{"docs/known-gaps.md", "## 2nd-errors", "## erp\n\n## 2nd-errors", "erp docs/known-gaps.md the section \"erp\" is about no registered target"},
		{"targets/t2nderrors/t2nderrors.go", "NewFake()", "NewHTTPClient(Config{})", "2nd-errors docs/known-gaps.md is said to be a fake"},
	} {
		before := get(t, m, c.file)
		after := strings.ReplaceAll(before, c.old, c.new)
		if c.old == "" {
			after = c.new
		}
		if after == before {
			t.Fatalf("%s has no %q:\n%s", c.file, c.old, before)
		}
		put(t, m.Root, c.file, after)
		if found := strings.Join(check(t, m), "\n"); !strings.Contains(found, c.want) {
			t.Errorf("%s with %q: want %q in\n%s", c.file, c.new, c.want, found)
		}
		put(t, m.Root, c.file, before)
	}
	if found := check(t, m); len(found) > 0 {
		t.Errorf("put back, it still drifts: %q", found)
	}
	if err := os.RemoveAll(filepath.Join(m.Root, "targets/crm")); err != nil {
		t.Fatal(err)
	}
	if found := strings.Join(check(t, m), "\n"); !strings.Contains(found, "the package targets/crm is not there") {
		t.Errorf("without the package: %s", found)
	}
}
