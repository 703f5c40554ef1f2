package filelock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/filelock"
)

func TestLock(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	if _, held, err := filelock.Held(name); held || err != nil {
		t.Fatalf("held %v, %v before there is a file", held, err)
	}
	lock, err := filelock.Acquire(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = filelock.Acquire(name)
	if !errors.Is(err, filelock.ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a second lock: %v", err)
	}
	if pid, held, err := filelock.Held(name); pid != os.Getpid() || !held || err != nil {
		t.Errorf("held %v by %d, %v", held, pid, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	lock.Release()
	lock.Release()
	if _, held, err := filelock.Held(name); held || err != nil {
		t.Errorf("held %v, %v after its release", held, err)
	}
	again, err := filelock.Acquire(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()

	var none *filelock.Lock
	none.Release()
	if _, err := filelock.Acquire(filepath.Join(name, "below a file")); err == nil || errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a lock that cannot be made: %v", err)
	}
}
