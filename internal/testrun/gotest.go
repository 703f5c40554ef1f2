//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// packageTimeout is above go test's ten minutes because two cores may run it all under the race detector.
	packageTimeout = 20 * time.Minute
	// stopGrace is what the tests get to end after an interrupt.
	stopGrace = 10 * time.Second
)

// unchecked leaves out what the race detector brings along, a check of each use of package unsafe. This module has
// one, for a system call; those of others cost a tenth of the time.
const unchecked = "-d=checkptr=0"

// uninstrumented are SQLite and its C library, translated to Go: the race detector does not watch their memory, which makes
// tests on SQLite five times faster. A package that instantiates generic types of sync or sync/atomic must not be among
// them: the linker could take its copy of their methods for all others, and the detector would see races everywhere.
var uninstrumented = []string{"modernc.org/sqlite/lib", "modernc.org/libc"}

// arguments returns those of the go command.
func arguments(race bool, args []string) []string {
	// One package more than go test takes at a time: much of what they do is to wait for leases, timeouts and servers. Vet
	// has been over them, with all build tags, where the linters ran; here it would do the same once more.
	full := []string{"test", "-shuffle=on", "-vet=off", fmt.Sprintf("-p=%d", runtime.NumCPU()+1), fmt.Sprintf("-timeout=%v", packageTimeout)}
	if benchmarks(args) { // each by itself
		full = append(full, "-p=1")
	}
	if race {
		full = append(full, "-race", "-gcflags=all="+unchecked)
		for _, pkg := range uninstrumented {
			full = append(full, "-gcflags="+pkg+"=-race=false "+unchecked)
		}
	}
	full = append(full, args...)
	if !namesPackage(args) {
		full = append(full, "./...")
	}
	return full
}

func goTest(ctx context.Context, race bool, env, args []string) error {
	full := arguments(race, args)
	fmt.Printf("testrun: go %s\n", strings.Join(full, " "))

	cmd := exec.CommandContext(ctx, "go", full...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	// A group of their own, so that an interrupt reaches the test binaries as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopGrace
	err := cmd.Run()
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), killGroup(cmd.Process.Pid))
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return errors.New("some tests did not pass, see above")
	}
	if err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	return nil
}

// killGroup ends what an interrupt has not ended.
func killGroup(group int) error {
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the tests: %w", err)
	}
	return nil
}

// namesPackage tells packages from flags and their values, among which "." is a pattern that everything matches.
func namesPackage(args []string) bool {
	for i, arg := range args {
		pattern := i > 0 && slices.Contains([]string{"-run", "-bench", "-skip"}, args[i-1])
		if arg == "." && !pattern || strings.HasPrefix(arg, "./") || strings.HasSuffix(arg, "/...") {
			return true
		}
	}
	return false
}

// benchmarks reports whether benchmarks are asked for.
func benchmarks(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == "-bench" || strings.HasPrefix(arg, "-bench=") })
}
