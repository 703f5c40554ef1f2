//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill ends the server as a power failure would: the postmaster and all its children get SIGKILL. It returns when they
// are gone.
func (s *Server) Kill() error {
	postmaster, err := s.postmaster()
	if err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	pids := append([]int{postmaster}, children(postmaster)...)
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d of the server: %w", pid, err)
		}
	}
	// Those that were begun in between end by themselves when they miss the postmaster.
	for end := time.Now().Add(startTimeout); time.Now().Before(end); <-time.After(time.Millisecond) {
		if !anyAlive(pids) && !s.holdsMemory() {
			// A dead postmaster that nobody has collected yet would count as one that runs.
			return os.Remove(filepath.Join(s.DataDir(), "postmaster.pid"))
		}
	}
	return errors.New("kill the server: its processes do not end")
}

// Freeze stops the postmaster and its children, as a machine that hangs does: connections stay open and nobody
// answers. Thaw lets them go on.
func (s *Server) Freeze() error { return s.signalAll(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (s *Server) Thaw() error { return s.signalAll(syscall.SIGCONT) }

func (s *Server) signalAll(sig syscall.Signal) error {
	postmaster, err := s.postmaster()
	if err != nil {
		return fmt.Errorf("signal the server: %w", err)
	}
	for _, pid := range append([]int{postmaster}, children(postmaster)...) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal process %d of the server: %w", pid, err)
		}
	}
	return nil
}

// Restart starts a server that was killed or stopped again, with the same data and port. It returns when the server
// answers.
func (s *Server) Restart() error { return s.ctl("-l", "server.log", "-w", "-t", "90", "start") }

// Shutdown stops the server in an orderly way that does not wait for clients; Restart starts it again.
func (s *Server) Shutdown() error { return s.ctl("-m", "fast", "-w", "stop") }

// Promote makes a primary of a standby. It returns when the server takes writes.
func (s *Server) Promote() error { return s.ctl("-w", "-t", "60", "promote") }

// Standby makes a copy of the server with pg_basebackup that follows it by streaming replication, until it is promoted.
func (s *Server) Standby(opts Options) (*Server, error) {
	opts.primary = s.url
	return StartWith(opts)
}

func (s *Server) ctl(args ...string) error {
	cmd := command(s.dir, s.as, filepath.Join(s.bin, "pg_ctl"), append([]string{"-D", "data"}, args...)...)
	// Not a pipe, which the server would keep open.
	out, err := os.CreateTemp("", "millbridge-pg_ctl-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pg_ctl %s: %w\n%s%s", args[len(args)-1], err, tail(out.Name()), tail(filepath.Join(s.dir, "server.log")))
	}
	return nil
}

// DataDir is where the server's data is.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

func (s *Server) postmaster() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	var found []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a malformed pattern
	for _, name := range stats {
		child, parent, _, ok := readStat(name)
		if ok && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// readStat reads who a process is, whose child, and whether it is dead and only waits for its parent.
func readStat(name string) (pid, parent int, zombie, ok bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, false, false
	}
	// The command's name is in parentheses and may hold anything.
	text := string(b)
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return 0, 0, false, false
	}
	fields := strings.Fields(text[end+1:])
	pid, err1 := strconv.Atoi(filepath.Base(filepath.Dir(name)))
	if len(fields) < 2 || err1 != nil {
		return 0, 0, false, false
	}
	parent, err2 := strconv.Atoi(fields[1])
	return pid, parent, fields[0] == "Z", err2 == nil
}

func anyAlive(pids []int) bool {
	for _, pid := range pids {
		if _, _, zombie, ok := readStat(fmt.Sprintf("/proc/%d/stat", pid)); ok && !zombie {
			return true
		}
	}
	return false
}

// holdsMemory reports whether a process still works in the data directory.
func (s *Server) holdsMemory() bool {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the only error is a malformed pattern
	for _, l := range links {
		if dir, err := os.Readlink(l); err == nil && dir == s.DataDir() {
			if _, _, zombie, ok := readStat(filepath.Join(filepath.Dir(l), "stat")); ok && !zombie {
				return true
			}
		}
	}
	return false
}

// Own gives a file or directory to the server's user.
func (s *Server) Own(name string) error {
	if s.as == nil {
		return nil
	}
	return os.Chown(name, int(s.as.Uid), int(s.as.Gid))
}
