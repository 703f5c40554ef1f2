//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	opts, rest := parse([]string{"--require-race", "./router", "-run", "X", "--no-install", "--pooled", "-v"})
	if !opts.requireRace || !opts.noInstall || !opts.pooled {
		t.Errorf("options %+v, want all", opts)
	}
	if want := []string{"./router", "-run", "X", "-v"}; !slices.Equal(rest, want) {
		t.Errorf("arguments for go test %q, want %q", rest, want)
	}
	for _, args := range [][]string{{"-bench", "."}, {"-bench=X", "./router"}} {
		if other, _ := parse(args); opts.benchmarks || !other.benchmarks {
			t.Errorf("%q are no benchmarks, or the arguments above are", args)
		}
	}
}

func TestNamesPackage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, false},
		{[]string{"-run", "TestX/with/slashes", "-v"}, false},
		{[]string{"./router", "-run", "X"}, true},
		{[]string{"-short", "."}, true},
		{[]string{"-run", "^$", "-bench", ".", "-benchmem"}, false},
		{[]string{"-bench", ".", "."}, true},
		{[]string{"github.com/millbridge/millbridge/schema/..."}, true},
	} {
		if got := namesPackage(c.args); got != c.want {
			t.Errorf("namesPackage(%q) = %v, want %v", c.args, got, c.want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	tests := arguments(true, []string{"-v"})
	if !slices.Contains(tests, "-race") || slices.Contains(tests, "-p=1") || !slices.Equal(tests[len(tests)-2:], []string{"-v", "./..."}) {
		t.Errorf("tests: %q", tests)
	}
	for _, args := range [][]string{{"-bench", "."}, {"-bench=.", "./router"}} {
		if got := arguments(false, args); !slices.Contains(got, "-p=1") || slices.Contains(got, "-race") {
			t.Errorf("benchmarks: %q", got)
		}
	}
	race, err := provideRace(t.Context(), options{noInstall: true, benchmarks: true})
	if err != nil || race.on {
		t.Errorf("race detector for benchmarks: %+v, %v", race, err)
	}
}

func TestProvideRace_says_what_is_missing(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	got, err := provideRace(t.Context(), options{noInstall: true})
	if err != nil || got.on {
		t.Errorf("without a compiler: %+v, %v; want a run without the race detector", got, err)
	}
	if _, err := provideRace(t.Context(), options{noInstall: true, requireRace: true}); err == nil {
		t.Error("the race detector is required and cannot be had, but no error")
	}
}

func TestProvideScratch(t *testing.T) {
	memory, dead := t.TempDir(), exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(memory, scratchPrefix+strconv.Itoa(dead.Process.Pid))
	inUse := filepath.Join(memory, scratchPrefix+strconv.Itoa(os.Getppid()))
	for _, dir := range []string{left, inUse} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOTMPDIR", "")
	for name, c := range map[string]struct {
		tmp, dir string
		space    uint64
		args     []string
		want     bool
	}{
		"plenty of memory":   {"", memory, 1, []string{"-run", "TestX"}, true},
		"a place was named":  {"/tmp", memory, 1, nil, false},
		"little memory":      {"", memory, 1 << 60, nil, false},
		"no such directory":  {"", memory + "/none", 1, nil, false},
		"a long form":        {"", memory, 1, []string{"-tags", "long,root", "-v"}, false},
		"a long form with =": {"", memory, 1, []string{"-v", "-tags=long"}, false},
	} {
		t.Setenv("TMPDIR", c.tmp)
		remove, err := provideScratch(c.dir, c.space, c.args)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		used := os.Getenv("TMPDIR")
		if got := used != c.tmp; got != c.want {
			t.Errorf("%s: in memory %v, want %v", name, got, c.want)
		}
		if err := remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(used); c.want && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: what was made stays: %v", name, err)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed run left is still there: %v", err)
	}
	if _, err := os.Stat(inUse); err != nil {
		t.Errorf("another run's directory is gone: %v", err)
	}
}
