// Package filelock locks files against other processes. The operating system frees a lock when its process ends,
// however it ends, so there is never a stale one.
package filelock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// ErrHeld reports a lock that somebody else holds: another process, or another Acquire in this one.
var ErrHeld = errors.New("the lock is held")

// A Lock is a held lock. The nil Lock holds nothing.
type Lock struct{ file *os.File }

// Acquire locks the file name for this process without waiting and writes the process's number into it. The file is
// created when needed, for its owner only, and stays. The error is [ErrHeld], naming the holder, when somebody holds it.
func Acquire(name string) (*Lock, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if errors.Is(err, ErrHeld) {
			return nil, fmt.Errorf("%w: %s by process %d", ErrHeld, name, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	// The number is written in one call, for readers who look at the same time.
	pid := fmt.Appendf(nil, "%-20d\n", os.Getpid())
	if _, err := f.WriteAt(pid, 0); err != nil {
		f.Close() //nolint:errcheck // the write's error says it all
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return &Lock{file: f}, nil
}

// Release gives the lock up.
func (l *Lock) Release() {
	if l != nil && l.file != nil {
		free(l.file)
		l.file = nil
	}
}

// free unlocks before it closes: a child process that this one is starting at the moment has the open file, too, and with
// it the lock, until it has become its program.
func free(f *os.File) {
	unlock(f) //nolint:errcheck // closing frees the lock as well, a little later
	f.Close() //nolint:errcheck // nothing was buffered
}

// Held reports whether somebody holds the lock of file name, and the number of that process. A file that does not
// exist is not held.
func Held(name string) (pid int, held bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer free(f)
	// A shared lock, so that two who ask do not see each other.
	switch err := lockShared(f); {
	case errors.Is(err, ErrHeld):
		return holder(f), true, nil
	case err != nil:
		return 0, false, fmt.Errorf("lock %s: %w", name, err)
	}
	return 0, false, nil
}

// holder reads the number that the holder wrote; 0 if it has not yet.
func holder(f *os.File) int {
	b := make([]byte, 32)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
