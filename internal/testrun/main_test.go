//go:build unix

package main

import (
	"slices"
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
		{[]string{"github.com/millbridge/millbridge/schema/..."}, true},
	} {
		if got := namesPackage(c.args); got != c.want {
			t.Errorf("namesPackage(%q) = %v, want %v", c.args, got, c.want)
		}
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
