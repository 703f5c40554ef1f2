//go:build unix

// Package natsproc runs nats-server as a process of its own, so that a test can kill and restart it from outside: the
// test's own binary, started once more, is the server.
package natsproc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	serveArg   = "natsproc-serve"
	restartArg = "natsproc-restart"
	limit      = 30 * time.Second
)

// Main makes the process a server, or a restart of one, if it was started as that; then it does not return. Call it
// first in TestMain.
func Main() {
	if len(os.Args) != 4 {
		return
	}
	var run func(dir string, owner int) error
	switch os.Args[1] {
	case serveArg:
		run = serve
	case restartArg:
		run = restart
	default:
		return
	}
	owner, err := strconv.Atoi(os.Args[3])
	if err == nil {
		err = run(os.Args[2], owner)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "natsproc:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a server in a process of its own. It ends with the test, or with the test's process.
type Process struct{ dir string }

// Start starts a server with JetStream on a free loopback port.
func Start(t testing.TB) *Process {
	t.Helper()
	return StartIn(t, t.TempDir())
}

// StartIn is Start with a directory for the server's files.
func StartIn(t testing.TB, dir string) *Process {
	t.Helper()
	p := &Process{dir: dir}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "port"), []byte(strconv.Itoa(port)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := p.RestartCommand()
	if out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("start nats-server: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := kill(p.dir); err != nil {
			t.Errorf("end nats-server: %v", err)
		}
	})
	return p
}

// URL is where clients connect; it stays the same when the server restarts.
func (p *Process) URL() string {
	port, _ := os.ReadFile(filepath.Join(p.dir, "port")) // written by Start
	return "nats://127.0.0.1:" + string(port)
}

// RestartCommand is the command that kills the server and starts it again with the same streams; it ends when the new
// one takes connections.
func (p *Process) RestartCommand() []string {
	return []string{os.Args[0], restartArg, p.dir, strconv.Itoa(os.Getpid())}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func restart(dir string, owner int) error {
	one, err := lock(filepath.Join(dir, "restart")) // restarts at the same time wait for each other
	if err != nil {
		return err
	}
	defer one.Close()
	if err := kill(dir); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0], serveArg, dir, strconv.Itoa(owner))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	port, err := os.ReadFile(filepath.Join(dir, "port"))
	if err != nil {
		return err
	}
	deadline := time.After(limit)
	for {
		conn, err := net.Dial("tcp", "127.0.0.1:"+string(port))
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-deadline:
			return errors.New("the server takes no connections")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the server the hard way and waits until it is gone: its lock is free.
func kill(dir string) error {
	if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		if err := os.Remove(filepath.Join(dir, "pid")); err != nil {
			return err
		}
	}
	alive, err := lock(filepath.Join(dir, "alive"))
	if err != nil {
		return err
	}
	return alive.Close()
}

// lock waits for the lock on a file; closing the file, or the end of the process, frees it.
func lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
	}
}

func serve(dir string, owner int) error {
	alive, err := lock(filepath.Join(dir, "alive"))
	if err != nil {
		return err
	}
	defer alive.Close()
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "port"))
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "natsproc", Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: filepath.Join(dir, "js"), NoSigs: true,
	})
	if err != nil {
		return err
	}
	srv.ConfigureLogger()
	srv.Start()
	for range time.Tick(500 * time.Millisecond) {
		if err := syscall.Kill(owner, 0); err != nil {
			break // nobody is left to end it
		}
	}
	srv.Shutdown()
	return nil
}
