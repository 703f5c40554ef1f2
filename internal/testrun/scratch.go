//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// memory is where Linux keeps files in memory.
	memory = "/dev/shm"
	// scratchSpace is several times what the tests have needed at their fullest.
	scratchSpace  = 8 << 30
	scratchPrefix = "millbridge-testrun-"
)

// provideScratch puts the files of all tests into memory where there is plenty of it: hundreds of databases and streams
// are made, flushed and deleted, for which a disk takes a third of the whole time. Flushing stays on everywhere. Long
// forms stay on the disk, which is what they are about. It changes TMPDIR for this process and those it starts.
func provideScratch(dir string, space uint64, args []string) (remove func() error, err error) {
	none := func() error { return nil }
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || isLong(args) || syscall.Statfs(dir, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < space {
		return none, nil
	}
	if err := removeLeft(dir); err != nil {
		return nil, err
	}
	// Compiling and linking would fill it.
	if os.Getenv("GOTMPDIR") == "" {
		if err := os.Setenv("GOTMPDIR", os.TempDir()); err != nil {
			return nil, fmt.Errorf("keep Go's files on the disk: %w", err)
		}
	}
	scratch := filepath.Join(dir, scratchPrefix+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return none, nil
	}
	// PostgreSQL may run as another user.
	if err := errors.Join(os.Chmod(scratch, 0o777|os.ModeSticky), os.Setenv("TMPDIR", scratch)); err != nil {
		return nil, fmt.Errorf("make a place for the tests' files: %w", err)
	}
	return func() error { return os.RemoveAll(scratch) }, nil
}

// isLong tells the long forms of tests.
func isLong(args []string) bool {
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(strings.TrimLeft(arg, "-"), "tags") })
	return i >= 0 && slices.ContainsFunc(args[i:min(i+2, len(args))], func(arg string) bool { return strings.Contains(arg, "long") })
}

// removeLeft removes what runs have left that were killed.
func removeLeft(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for what was left: %w", err)
	}
	for _, path := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), scratchPrefix))
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what a killed run left: %w", err)
		}
	}
	return nil
}
