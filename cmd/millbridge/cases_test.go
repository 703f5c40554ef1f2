package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
)

// onServers runs test with the flags of the embedded default, and of PostgreSQL and NATS.
func onServers(t *testing.T, test func(t *testing.T, flags []string)) {
	t.Helper()
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, []string{"--data-dir", filepath.Join(t.TempDir(), "data")})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, serverFlags(testkit.Postgres(t), testkit.NATS(t)))
	})
}

func serverFlags(pool *pgxpool.Pool, server *testkit.Server) []string {
	return []string{"--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL(), "--set", "nats.replicas=1"}
}

// begin starts the program; what it prints is in the buffer once it has ended.
func begin(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// ends runs the program and returns what it prints.
func ends(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd, out := begin(t, args...)
	err := cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%v: exit code %d (%v), want %d:\n%s", args, got, err, code, out)
	}
	return out.String()
}

// all runs the program n times at once.
func all(t *testing.T, n int, args ...string) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { ends(t, 0, args...) })
	}
	wg.Wait()
}

// receiver answers each request after a while and counts them by message.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	begun    int
	answered map[string]int
}

func receive(t *testing.T, after func()) *receiver {
	t.Helper()
	r := &receiver{answered: make(map[string]int)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.begun++
		r.mu.Unlock()
		after()
		if req.Context().Err() == nil {
			r.mu.Lock()
			r.answered[req.Header.Get("webhook-id")]++
			r.mu.Unlock()
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) counts() (begun, answered int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.answered {
		answered += n
	}
	return r.begun, answered
}

func (r *receiver) awaits(t *testing.T, begun int) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if n, _ := r.counts(); n < begun {
			return fmt.Errorf("%d requests, want %d", n, begun)
		}
		return nil
	})
}

func (r *receiver) settings() []string {
	return []string{"--set", "targets.crm.type=webhook", "--set", "targets.crm.url=" + r.URL + "/x", "--set", "targets.crm.allow_private=true"}
}

func publish(t *testing.T, n int, flags []string) {
	t.Helper()
	for i := range n {
		ends(t, 0, append([]string{"publish", "job", "crm", "x", fmt.Sprint(i)}, flags...)...)
	}
}

// SIGTERM while ten handlers run and more messages wait: the ten finish, nothing else begins, the exit code is 0, and
// the next process handles the rest and nothing again.
func TestC08_sigterm(t *testing.T) {
	onServers(t, func(t *testing.T, flags []string) {
		r := receive(t, func() { <-time.After(500 * time.Millisecond) })
		publish(t, 12, flags)
		run := append(append([]string{"run", "--set", "stop_timeout=10s"}, r.settings()...), flags...)
		cmd := program(t, "bridge runs", run...)
		r.awaits(t, 10)
		send(t, cmd, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		begun, answered := r.counts()
		if begun != answered {
			t.Errorf("%d requests began and %d were answered", begun, answered)
		}
		again := program(t, "bridge runs", run...)
		r.awaits(t, 12)
		send(t, again, syscall.SIGTERM)
		if err := again.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.answered) != 12 {
			t.Errorf("%d messages were handled, want 12", len(r.answered))
		}
		for id, n := range r.answered {
			if n != 1 {
				t.Errorf("message %s was handled %d times", id, n)
			}
		}
	})
}

// A stop whose limit passes: exit code 1, how many are unfinished, and they come back.
func TestC08_sigterm_whose_limit_passes(t *testing.T) {
	onServers(t, func(t *testing.T, flags []string) {
		release := make(chan struct{})
		r := receive(t, func() { <-release })
		publish(t, 2, flags)
		run := append(append([]string{"run", "--set", "stop_timeout=300ms"}, r.settings()...), flags...)
		cmd, out := begin(t, run...)
		r.awaits(t, 2)
		send(t, cmd, syscall.SIGTERM)
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v", err)
		}
		for _, text := range []string{"unfinished=2", "2 after 300ms"} {
			if !strings.Contains(out.String(), text) {
				t.Errorf("it does not say %q:\n%s", text, out)
			}
		}
		close(release)
		again := program(t, "bridge runs", run...)
		r.awaits(t, 4)
		send(t, again, syscall.SIGTERM)
		if err := again.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// Eight processes migrate an empty database at once, one is killed in the middle; then eight run.
func TestC26_processes_race_to_migrate(t *testing.T) {
	t.Parallel()
	pool, server := testkit.EmptyPostgres(t), testkit.NATS(t)
	flags := serverFlags(pool, server)
	migrate := append([]string{"migrate", "up"}, flags...)

	// Somebody holds a name that the migration needs, so that it stands in the middle when it is killed.
	exec := func(query string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE SCHEMA millbridge`)
	blocker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), `CREATE TABLE millbridge.inbox (n integer)`); err != nil {
		t.Fatal(err)
	}
	victim, _ := begin(t, migrate...)
	testkit.Eventually(t, time.Minute, func() error {
		var n int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("it does not wait yet")
		}
		return err
	})
	send(t, victim, os.Kill)
	_ = victim.Wait()
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	all(t, 8, migrate...)
	if out := ends(t, 0, append([]string{"migrate", "status"}, flags...)...); !strings.Contains(out, "version 1, this program needs 1") {
		t.Errorf("migrate status says %s", out)
	}
	var versions int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM millbridge.migrations`).Scan(&versions); err != nil || versions != 1 {
		t.Errorf("the version is noted %d times, %v", versions, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			cmd := program(t, "bridge runs", append([]string{"run"}, flags...)...)
			send(t, cmd, syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("run ended with %v", err)
			}
		})
	}
	wg.Wait()

	// A program that is older or newer than the tables.
	exec(`UPDATE millbridge.migrations SET version = 2`)
	if out := ends(t, 1, append([]string{"run"}, flags...)...); !strings.Contains(out, "newer") {
		t.Errorf("run on tables of a newer version says %s", out)
	}
	exec(`UPDATE millbridge.migrations SET version = 0`)
	if out := ends(t, 1, append([]string{"run"}, flags...)...); !strings.Contains(out, "millbridge run --migrate") {
		t.Errorf("run on tables of an older version says %s", out)
	}
}

// The embedded default migrates itself, however many commands find it empty.
func TestC26_commands_race_to_create_the_embedded_default(t *testing.T) {
	t.Parallel()
	flags := []string{"--data-dir", filepath.Join(t.TempDir(), "data")}
	all(t, 8, append([]string{"publish", "job", "crm", "x"}, flags...)...)
	if out := ends(t, 0, append([]string{"outbox", "list", "--json"}, flags...)...); strings.Count(out, "\n") != 8 {
		t.Errorf("the outbox holds\n%s", out)
	}
	if out := ends(t, 0, append([]string{"migrate", "status"}, flags...)...); !strings.Contains(out, "version 1, this program needs 1") {
		t.Errorf("migrate status says %s", out)
	}
}
