//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runMain makes the test's own binary the program, so that nothing has to be built.
const runMain = "MILLBRIDGE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program starts the program and waits until it has printed text.
func program(t *testing.T, until string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), until) {
			go func() {
				for lines.Scan() { // a full pipe would stop the program
				}
			}()
			return cmd
		}
	}
	t.Fatalf("%v ended without %q:\n%s", args, until, all.String())
	return nil
}

func send(t *testing.T, cmd *exec.Cmd, s os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestMain_exit_codes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"version"}},
		{1, []string{"status", "--data-dir", filepath.Join(t.TempDir(), "none")}},
		{2, []string{"nonsense"}},
		{2, []string{"config", "check", "--log-level", "loud"}},
		{3, []string{"config", "check"}},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], c.args...)
		cmd.Env = append(os.Environ(), runMain+"=1")
		if c.code == 3 {
			cmd.Env = append(cmd.Env, "MILLBRIDGE_LOG_LEVEL=loud")
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%v: exit code %d (%v), want %d:\n%s", c.args, code, err, c.code, &out)
		}
	}
}

func TestMain_first_signal_stops_gracefully(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := program(t, "Try in another terminal", "dev", "--data-dir", filepath.Join(t.TempDir(), "data"))
		send(t, cmd, s)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %v: %v", s, err)
		}
	}
}

func TestMain_second_signal_ends_at_once(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release // an answer that takes longer than anybody waits
	}))
	defer server.Close()
	defer close(release)
	dir := filepath.Join(t.TempDir(), "data")
	settings := []string{
		"--data-dir", dir, "--set", "stop_timeout=1h", "--set", "targets.crm.type=webhook", "--set", "targets.crm.url=" + server.URL + "/x",
		"--set", "targets.crm.allow_private=true", "--set", "targets.crm.timeout=1h",
	}
	publish := exec.CommandContext(t.Context(), os.Args[0], append([]string{"publish", "job", "crm", "x"}, settings...)...)
	publish.Env = append(os.Environ(), runMain+"=1")
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := program(t, "bridge runs", append([]string{"run"}, settings...)...)
	select {
	case <-arrived:
	case <-time.After(30 * time.Second):
		t.Fatal("the webhook was not called")
	}
	send(t, cmd, syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for the handler: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	send(t, cmd, syscall.SIGTERM)
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the second signal did not end it")
	}
}
