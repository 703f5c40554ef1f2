//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

// testTimeout is long for one test; a guard whose removal makes its test hang is noticed as well.
const testTimeout = 3 * time.Minute

type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	broken   outcome = "BROKEN"
)

// worker tries mutants one after the other.
type worker struct {
	root, dir string
	postgres  string
	baseline  map[string]error // test -> how it went with all guards in place
}

// try says how the mutant ended, and shows why.
func (w *worker) try(ctx context.Context, m mutant) (outcome, string) {
	text, err := m.mutate(w.root)
	if err != nil {
		return broken, err.Error()
	}
	if err := w.passes(ctx, m); err != nil {
		return broken, fmt.Sprintf("the test does not pass with the guard: %v", err)
	}
	overlay, err := w.overlay(m, text)
	if err != nil {
		return broken, err.Error()
	}
	out, err := w.test(ctx, m, overlay)
	switch {
	case err == nil:
		return survived, out
	case notBuilt(out):
		return broken, out
	default:
		return killed, out
	}
}

// passes proves that the test runs and succeeds with all guards in place.
func (w *worker) passes(ctx context.Context, m mutant) error {
	key := m.Package + " " + m.Run
	if err, known := w.baseline[key]; known {
		return err
	}
	out, err := w.test(ctx, m, "")
	switch {
	case err != nil:
		err = fmt.Errorf("%w\n%s", err, out)
	case strings.Contains(out, "no tests to run"):
		err = errors.New("there is no such test")
	}
	w.baseline[key] = err
	return err
}

// overlay writes the changed file and the list that tells the build to use it instead.
func (w *worker) overlay(m mutant, text []byte) (string, error) {
	changed := filepath.Join(w.dir, "changed"+filepath.Ext(m.File))
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, m.File): changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(w.dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

func (w *worker) test(ctx context.Context, m mutant, overlay string) (string, error) {
	// -vet=off: a mutant may leave a harmless oddity behind, and it is the test that has to notice.
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-timeout="+testTimeout.String(), "-run="+m.Run, m.Package)
	cmd.Dir = w.root
	cmd.Env = append(os.Environ(), pgserver.URLVar+"="+w.postgres)
	if overlay != "" {
		// In the environment, so that programs which the test builds lack the guard too.
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	return out.String(), err
}

// failedAfter says how long the failing test itself took: most of the time is spent on building it.
func failedAfter(out string) string {
	if m := failLine.FindStringSubmatch(out); m != nil {
		return ", failed after " + m[1]
	}
	return ""
}

var failLine = regexp.MustCompile(`(?m)^FAIL\t\S+\t([0-9.]+s)$`)

// notBuilt tells code that does not compile from a test that fails.
func notBuilt(out string) bool {
	return strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]")
}
