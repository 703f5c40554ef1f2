//go:build linux || darwin

package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/command"
)

// gone reports whether a process has ended and is not waiting for us. A grandchild's zombie is for init to collect.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields[0] == "Z" && fields[1] != strconv.Itoa(os.Getpid())
}

// wantGone fails the test unless all processes whose numbers are in the file end soon.
func wantGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || len(strings.Fields(string(text))) == 0 {
		t.Fatalf("the program has noted no processes: %q, %v", text, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for !gone(pid) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("process %d is still there", pid)
			}
		}
	}
}

// cutWhen returns a context that ends once the file is there.
func cutWhen(t *testing.T, file string) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(file); err == nil {
				cancel()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() { cancel(); wg.Wait() }
}

func TestStop_ends_the_whole_group(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := cutWhen(t, filepath.Join(dir, "ready"))
	defer cancel()
	err := newProgram(t, command.Config{
		Command: script(`trap : TERM
			(trap 'echo asked > asked; exit 0' TERM; : > ready; while :; do sleep 0.05; done) & child=$!
			sleep 60 & echo $$ $child $! > pids
			wait $child; wait $child`), Dir: dir, Grace: time.Minute,
	}).Handle(ctx, job)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "asked")); err != nil {
		t.Error("what the program has started was not asked to stop")
	}
	wantGone(t, filepath.Join(dir, "pids"))
}

func TestStop_lets_the_program_clean_up(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := cutWhen(t, filepath.Join(dir, "ready"))
	defer cancel()
	err := newProgram(t, command.Config{
		Command: script(`trap 'echo tidy > tidy; exit 0' TERM; : > ready; while :; do sleep 0.05; done`), Dir: dir, Grace: time.Minute,
	}).Handle(ctx, job)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was stopped is done: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tidy")); err != nil {
		t.Error("the program was not asked to stop")
	}
}

func TestStop_kills_who_does_not_listen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := cutWhen(t, filepath.Join(dir, "ready"))
	defer cancel()
	start := time.Now()
	err := newProgram(t, command.Config{
		Command: script(`trap '' TERM; echo $$ > pids; : > ready; while :; do sleep 0.05; done`), Dir: dir, Grace: 50 * time.Millisecond,
	}).Handle(ctx, job)
	if !errors.Is(err, context.Canceled) || time.Since(start) > 20*time.Second {
		t.Errorf("error %v after %v", err, time.Since(start))
	}
	wantGone(t, filepath.Join(dir, "pids"))
}

// A program that is stopped has not ended, and hears SIGTERM only when it goes on.
func TestStop_kills_a_program_that_is_stopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := newProgram(t, command.Config{Command: script(`echo $$ > pids; kill -STOP $$`), Dir: dir, Grace: 50 * time.Millisecond}).Handle(ctx, job)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	wantGone(t, filepath.Join(dir, "pids"))
}

// What a program leaves behind neither runs on nor holds the handler, as long as it is in the group.
func TestHandle_ends_what_the_program_leaves_behind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := time.Now()
	err := newProgram(t, command.Config{Command: script(`sleep 60 & echo $! > pids; trap '' TERM; (trap '' TERM; sleep 61) & echo $! >> pids`), Dir: dir}).Handle(t.Context(), job)
	if err != nil || time.Since(start) > 20*time.Second {
		t.Errorf("error %v after %v", err, time.Since(start))
	}
	wantGone(t, filepath.Join(dir, "pids"))
}

// runs is how often the program is run to find out whether anything is left.
const runs = 100

func TestHandle_leaves_no_process(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newProgram(t, command.Config{Command: script(`cat > /dev/null; sleep 60 & echo $$ $! >> pids; exit $(($$ % 3))`), Dir: dir})
	limit := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for range runs {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			_ = h.Handle(t.Context(), job)
		})
	}
	wg.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil || len(strings.Fields(string(text))) != 2*runs {
		t.Fatalf("%d processes, error %v", len(strings.Fields(string(text))), err)
	}
	wantGone(t, filepath.Join(dir, "pids"))
}
