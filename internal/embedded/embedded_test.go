package embedded_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/filelock"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// childDir makes this test binary run the directory it names until its standard input ends.
const childDir = "MILLBRIDGE_TEST_EMBEDDED_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}

func child(dir string) int {
	in, err := embedded.Open(context.Background(), dir, embedded.Options{})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	if err := in.Close(); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// process is another process that runs a data directory.
type process struct {
	cmd  *exec.Cmd
	stop func() error // clean stop
}

func startProcess(t *testing.T, dir string) process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	return process{cmd, func() error { return errors.Join(in.Close(), cmd.Wait()) }}
}

func (p process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait() //nolint:errcheck // it was killed
}

func open(t *testing.T, dir string) *embedded.Instance {
	t.Helper()
	in, err := embedded.Open(t.Context(), dir, embedded.Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

func publish(t *testing.T, in *embedded.Instance, text string) {
	t.Helper()
	err := in.Store.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := in.Store.Append(t.Context(), tx, []schema.Envelope{schema.NewJob("shop", "say", []byte(text))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func backlog(t *testing.T, in *embedded.Instance) int {
	t.Helper()
	rows, err := in.Store.ListOutbox(t.Context(), schema.RowFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	t.Run("keeps rows and streams over a restart", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "a b?%#c") // characters that mean something in a URI
		in := open(t, dir)
		publish(t, in, "hello")
		stored(t, in.Conn(), "one")
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir)
		if n := backlog(t, again); n != 1 {
			t.Errorf("%d rows after the restart, want 1", n)
		}
		if n := messages(t, again.Conn()); n != 1 {
			t.Errorf("%d messages after the restart, want 1", n)
		}
		if err := again.Store.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("lets nobody but the owner in", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		in := open(t, dir)
		publish(t, in, "secret")
		stored(t, in.Conn(), "secret")
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if path == dir && info.Mode().Perm() != 0o700 {
				t.Errorf("the directory has mode %o", info.Mode().Perm())
			}
			if !d.IsDir() && filepath.Dir(path) == dir && info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %o", path, info.Mode().Perm())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		bare, err := nats.Connect("nats://" + strings.Split(in.NATSURL, "@")[1])
		if err == nil {
			bare.Close()
		}
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connecting without the token: %v", err)
		}
	})
	t.Run("refuses a directory that others can enter", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "theirs"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the fault under test
			t.Fatal(err)
		}
		_, err := embedded.Open(t.Context(), dir, embedded.Options{})
		if err == nil || !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("says why the server did not start, and leaves nothing held", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "nats"), []byte("a file where a directory should be"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // the least a directory needs
			t.Fatal(err)
		}
		_, err := embedded.Open(t.Context(), dir, embedded.Options{})
		if err == nil || !strings.Contains(err.Error(), "start NATS server: Can't start JetStream: ") {
			t.Fatalf("error %v", err)
		}
		if err := os.Remove(filepath.Join(dir, "nats")); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
	})
	t.Run("takes the rows of a process that was killed", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		p := startProcess(t, dir)
		in, err := embedded.Attach(t.Context(), dir, embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		publish(t, in, "hello")
		stored(t, in.Conn(), "one")
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		p.kill(t)
		if _, ok, err := embedded.Find(t.Context(), dir); ok || err != nil {
			t.Fatalf("found %v, %v after the process was killed", ok, err)
		}
		again := open(t, dir)
		if rows, stored := backlog(t, again), messages(t, again.Conn()); rows != 1 || stored != 1 {
			t.Errorf("%d rows and %d messages, want 1 and 1", rows, stored)
		}
	})
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)

	_, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", p.cmd.Process.Pid)) {
		t.Errorf("opening twice: %v", err)
	}
	running, ok, err := embedded.Find(t.Context(), dir)
	if err != nil || !ok || running.PID != p.cmd.Process.Pid {
		t.Fatal(running, ok, err)
	}
	in, err := embedded.OpenOrAttach(t.Context(), dir, embedded.Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if !in.Attached() {
		t.Fatal("not attached to the other process")
	}
	publish(t, in, "from outside")
	stored(t, in.Conn(), "one")

	// The connection follows the next owner of the directory to its new address.
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	next := startProcess(t, dir)
	testkit.Eventually(t, time.Minute, func() error {
		if err := in.Conn().FlushTimeout(time.Second); err != nil {
			return err
		}
		if running, ok, err := embedded.Find(t.Context(), dir); !ok || err != nil || running.PID != next.cmd.Process.Pid {
			return fmt.Errorf("found %v %v %w", running, ok, err)
		}
		return nil
	})
	if n := messages(t, in.Conn()); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	if n := backlog(t, in); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	if err := next.stop(); err != nil {
		t.Fatal(err)
	}
}

// Processes that stay and are attached run the directory when its process has ended: one of them, and whoever else is
// attached finds it.
func TestAttached_one_succeeds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir)
	stored(t, first.Conn(), "one")
	var attached []*embedded.Instance
	for _, succeed := range []bool{false, true, true} {
		in, err := embedded.Attach(t.Context(), dir, embedded.Options{Logger: testkit.Logger(t), Succeed: succeed})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		attached = append(attached, in)
	}
	for left := 2; left > 0; left-- {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		first = nil
		testkit.Eventually(t, time.Minute, func() error {
			for i, in := range attached {
				if !in.Attached() {
					first = in
					attached = append(attached[:i:i], attached[i+1:]...)
					return nil
				}
			}
			return errors.New("nobody runs the directory")
		})
		for _, in := range append(attached, first) {
			testkit.Eventually(t, time.Minute, func() error { return in.Conn().FlushTimeout(time.Second) })
			if n := messages(t, in.Conn()); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}
		}
		if running, ok, err := embedded.Find(t.Context(), dir); err != nil || !ok || running.PID != os.Getpid() {
			t.Errorf("found %v %v %v", running, ok, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := embedded.Find(t.Context(), dir); ok || err != nil {
		t.Errorf("found %v, %v when all that stay have ended", ok, err)
	}
}

func TestStaleFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A crashed process left a number that now belongs to a living one: this one.
	if err := os.WriteFile(filepath.Join(dir, "lock"), fmt.Appendf(nil, "%-20d\n", os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	left, err := json.Marshal(map[string]any{"version": 1, "pid": os.Getpid(), "address": "127.0.0.1:1", "token": "t", "url": "nats://t@127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "millbridge.json"), left, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // the least a directory needs
		t.Fatal(err)
	}
	if _, ok, err := embedded.Find(t.Context(), dir); ok || err != nil {
		t.Fatalf("found %v, %v", ok, err)
	}
	if _, err := embedded.Attach(t.Context(), dir, embedded.Options{}); err == nil {
		t.Fatal("attached to nothing")
	}
	in := open(t, dir)
	running, ok, err := embedded.Find(t.Context(), dir)
	if err != nil || !ok || running.NATSURL != in.NATSURL {
		t.Fatal(running, ok, err)
	}
}

// stored stores one message in a stream of the server.
func stored(t *testing.T, nc *nats.Conn, text string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "TEST", Subjects: []string{"test"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "test", []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func messages(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "TEST")
	if err != nil {
		t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

func TestAttachReportsABrokenDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := filelock.Acquire(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	address := fmt.Sprintf(`{"version":1,"pid":%d,"address":"127.0.0.1:1","token":"t","url":"nats://t@127.0.0.1:1"}`, os.Getpid())
	if err := os.WriteFile(filepath.Join(dir, "millbridge.json"), []byte(address), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "millbridge.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if in, err := embedded.Attach(t.Context(), dir, embedded.Options{}); err == nil {
		in.Close()
		t.Fatal("attached to a directory without a database")
	}
}
