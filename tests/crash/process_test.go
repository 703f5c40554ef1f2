//go:build linux

package crash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A role is what a process does.
type role string

const (
	forwarder role = "forwarder"
	worker    role = "worker"
	producer  role = "producer"
	operator  role = "operator"
)

// A process is a program that was started and may be killed.
type process struct {
	cmd   *exec.Cmd
	log   string        // file
	from  int64         // where its lines begin in it
	ended chan struct{} // closed when it has ended
}

// start runs a program; what it prints is added to a file that all lives of a slot share.
func start(program, log string, env, args []string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, args...), log: log, from: info.Size(), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // its state says how it ended
		close(p.ended)
	}()
	return p, nil
}

// endsWithin reports whether the process ends by itself in that time.
func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // fails only if it has ended
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// killed reports whether a process that has ended was killed.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// isStopped reports whether the process does not run because of SIGSTOP.
func (p *process) isStopped() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "T")
}

// output returns the last of what the process has printed.
func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = text[min(p.from, int64(len(text))):]
	return filepath.Base(p.log) + ":\n" + string(bytes.TrimSpace(text[max(0, len(text)-3000):]))
}
