//go:build unix

package filelock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A child process that has the open file keeps nobody out once the lock is released.
func TestRelease_with_a_child(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := Acquire(name)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat") // until its input ends
	child.ExtraFiles = []*os.File{lock.file}
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait() //nolint:errcheck // it has nothing to say
	defer input.Close()
	lock.Release()
	again, err := Acquire(name)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.Release()
}
