//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRegistry keeps the registry in step with the code; whether each guard is tested, only a run shows.
func TestRegistry(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := load(os.DirFS("registry"))
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) == 0 {
		t.Fatal("the registry is empty")
	}
	for _, m := range mutants {
		if _, err := m.mutate(root); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if _, err := os.Stat(filepath.Join(root, m.Package)); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// TestSabotage makes one of the deliberate faults for real; "make sabotage" makes them all.
func TestSabotage(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := load(os.DirFS("registry"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mutants, func(m mutant) bool { return m.Name == "deliberate, each attempt of a webhook has another id" })
	if i < 0 {
		t.Fatal("the fault is not registered")
	}
	w := &worker{root: root, dir: t.TempDir(), baseline: map[string]error{}}
	if got, detail := w.try(t.Context(), mutants[i]); got != killed || failedAfter(detail) == "" {
		t.Errorf("%s: %s\n%s", mutants[i].Name, got, detail)
	}
}

func TestLoad_refuses(t *testing.T) {
	t.Parallel()
	const whole = "- {name: a, guard: g, file: f, old: x, new: y, package: ./p, run: T}\n"
	for name, c := range map[string]struct{ text, want string }{
		"the same name twice": {whole + whole, "two mutants"},
		"a missing field":     {"- {name: a, file: f, old: x, new: y, package: ./p, run: T}\n", "has no guard"},
		"no change":           {strings.Replace(whole, "new: y", "new: x", 1), "changes nothing"},
		"an unknown field":    {"- {nam: a}\n", "nam"},
	} {
		_, err := load(fstest.MapFS{"r.yaml": {Data: []byte(c.text)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestWorker tells the three outcomes apart on a module of three lines.
func TestWorker(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.org/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc limit(n int) int { return min(n, 3) }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestLimit(t *testing.T) {\n\tif limit(5) != 3 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &worker{root: root, dir: t.TempDir(), baseline: map[string]error{}}
	base := mutant{Name: "m", File: "m.go", Old: "min(n, 3)", Package: ".", Run: "TestLimit"}
	for name, c := range map[string]struct {
		edit func(*mutant)
		want outcome
	}{
		"the test notices":       {func(m *mutant) { m.New = "n" }, killed},
		"the test does not":      {func(m *mutant) { m.New = "3" }, survived},
		"it does not compile":    {func(m *mutant) { m.New = "(" }, broken},
		"the text is not there":  {func(m *mutant) { m.Old = "max" }, broken},
		"there is no such test":  {func(m *mutant) { m.New = "n"; m.Run = "TestNone" }, broken},
		"there is no such place": {func(m *mutant) { m.New = "n"; m.Package = "./none" }, broken},
	} {
		m := base
		c.edit(&m)
		if got, detail := w.try(t.Context(), m); got != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, c.want, detail)
		}
	}
}
