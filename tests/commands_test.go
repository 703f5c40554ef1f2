package tests

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/cli"
)

// commandPattern finds command lines: in code spans, and as indented lines of their own.
var commandPattern = regexp.MustCompile("(?m)(?:`|^    )(?:go run \\./cmd/)?(millbridge [a-z][^`\n]*)")

// TestDocs_commands_exist runs the help of every command line that the documents show, flags included.
func TestDocs_commands_exist(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, doc := range []string{"README.md", "docs/operations.md", "docs/guarantees.md", "docs/configuration.md"} {
		for _, m := range commandPattern.FindAllStringSubmatch(read(t, doc), -1) {
			checked++
			if fault := help(t, strings.Fields(m[1])[1:]); fault != "" {
				t.Errorf("%s: %s\n%s", doc, m[1], fault)
			}
		}
	}
	if checked < 10 {
		t.Errorf("found only %d command lines", checked)
	}
}

// help asks for the help of a command line, which knows its subcommands and flags, and returns what went wrong.
func help(t *testing.T, args []string) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	code := cli.Main(t.Context(), append(args, "--help"), env)
	words := []string{"millbridge"}
	for _, arg := range args {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(arg) {
			break
		}
		words = append(words, arg)
	}
	if code != 0 {
		return errs.String()
	}
	if usage := "\n  " + strings.Join(words, " "); !strings.Contains(out.String(), usage) {
		return "the help is about something else"
	}
	return ""
}

// TestReadme_shows_what_the_demo_prints runs the demo and compares what is the same each time: the read back counts.
func TestReadme_shows_what_the_demo_prints(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	env := cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	if code := cli.Main(t.Context(), []string{"demo"}, env); code != 0 {
		t.Fatalf("demo: exit code %d\n%s%s", code, out.String(), errs.String())
	}
	const from = "The shop, read back\n"
	_, printed, found := strings.Cut(out.String(), from)
	_, shown, ok := strings.Cut(read(t, "README.md"), from)
	shown, _, closed := strings.Cut(shown, "```")
	if !found || !ok || !closed {
		t.Fatalf("the demo or README.md has no %q\n%s", from, out.String())
	}
	if printed != shown {
		t.Errorf("README.md shows\n%s\nthe demo prints\n%s", shown, printed)
	}
}
