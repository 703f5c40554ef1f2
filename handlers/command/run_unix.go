//go:build linux || darwin

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

var errUnsupported error

// leftOpen is how long the output may stay open after the program has ended: only a process that has left the group can
// keep it open.
const leftOpen = time.Second

// run starts the program in a process group of its own and returns when it has ended and been waited for. An error says
// that it could not be started, or was stopped because ctx has ended.
func (p *program) run(ctx context.Context, vars []variable, payload []byte) (ending, error) {
	var secrets []string
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir = p.dir
	for _, v := range vars {
		cmd.Env = append(cmd.Env, v.name+"="+v.value)
		if v.secret {
			secrets = append(secrets, v.value)
		}
	}
	stdout, stderr := &output{limit: p.maxOutput}, tailFor(secrets)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(payload), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = leftOpen
	if err := cmd.Start(); err != nil {
		return ending{}, p.startError(err)
	}

	stopped := p.watch(ctx, cmd.Process.Pid)
	err := cmd.Wait()
	end := ending{code: cmd.ProcessState.ExitCode(), stdout: *stdout, stderr: lastWords(stderr.kept, secrets)}
	if stopped {
		return end, fmt.Errorf("stopped: %w%s", context.Cause(ctx), hint(end.stderr))
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		end.signal = status.Signal().String()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && end.code == 0 {
		return end, err // the payload or the output got lost on the way
	}
	return end, nil
}

// startError says why there is no program: the system does not tell whether it is the file or the directory.
func (p *program) startError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	if errno == syscall.ENOENT && strings.ContainsAny(p.argv[0], " \t") {
		return fmt.Errorf("it cannot be started in %s: %w; arguments are entries of their own, behind the path", p.dir, err)
	}
	return fmt.Errorf("it cannot be started in %s: %w", p.dir, err)
}

// watch returns when the program has ended, and everything in its group with it. Before that it stops the group if ctx
// ends. The program is not waited for yet: as long as it is a zombie, nobody else can have its number.
func (p *program) watch(ctx context.Context, pid int) (stopped bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		awaitEnd(pid)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended: // both at once: the program was quicker
		default:
			stopped = true
			_ = syscall.Kill(-pid, syscall.SIGTERM)
		}
	}
	if stopped {
		timer := time.NewTimer(p.grace)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-ended
	return stopped
}

// awaitEnd returns when the child has ended, and leaves it to be waited for.
func awaitEnd(pid int) {
	const (
		byPID   = 1 // P_PID
		exited  = 4 // WEXITED
		dumped  = 3 // CLD_DUMPED, the last of the three codes of an end
		siCode  = 2 // place of si_code
		recheck = 50 * time.Millisecond
	)
	for {
		var info [32]int32 // siginfo_t has at most 128 bytes
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), exited|leaveZombie, 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno == 0 && info[siCode] > dumped: // macOS tells of programs that are stopped, too
			<-time.After(recheck)
		default:
			return
		}
	}
}
