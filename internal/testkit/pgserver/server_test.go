//go:build unix

package pgserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

// childVar makes this binary start a server, print its URL and wait to be killed.
const childVar = "MILLBRIDGE_TEST_PGSERVER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		child()
	}
	os.Exit(m.Run())
}

func child() {
	s, err := pgserver.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.URL())
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, os.Interrupt)
	<-wait
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestStart_gives_a_server_that_Stop_removes(t *testing.T) {
	t.Parallel()
	s, err := pgserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t, s.URL())
	if s.Major() < pgserver.MinMajor {
		t.Errorf("major version %d, want at least %d", s.Major(), pgserver.MinMajor)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := gone(s.URL(), dir); err != nil {
		t.Error(err)
	}
}

func TestStart_server_ends_when_its_owner_is_killed(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), childVar+"=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("the child said nothing: %v", err)
			}
			server := strings.TrimSpace(line)
			dir := dataDir(t, server)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed by us, or ended by itself after the interrupt
			testkit.Eventually(t, time.Minute, func() error { return gone(server, dir) })
		})
	}
}

func TestStart_leaves_nothing_when_its_owner_is_killed_meanwhile(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1200 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			// Not t.TempDir, which the server's user cannot enter.
			dir, err := os.MkdirTemp("", "millbridge-pgserver-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), childVar+"=1", "TMPDIR="+dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// From here on the keeper is there to clean up.
			testkit.Eventually(t, time.Minute, func() error {
				logs, err := filepath.Glob(filepath.Join(dir, "*", "setup.log"))
				if err == nil && len(logs) == 0 {
					err = errors.New("the keeper has not begun")
				}
				return err
			})
			<-time.After(after)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed by us
			testkit.Eventually(t, time.Minute, func() error { return empty(dir) })
		})
	}
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s has %d entries", dir, len(entries))
	}
	return err
}

// dataDir asks the server where its data is, which proves that it answers.
func dataDir(t *testing.T, server string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var dir string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('data_directory')").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the data directory: %v", err)
	}
	return dir
}

func gone(server, dir string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err == nil {
		return errors.Join(errors.New("the server still listens"), conn.Close())
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		return fmt.Errorf("%s is still there", dir)
	}
	return nil
}
