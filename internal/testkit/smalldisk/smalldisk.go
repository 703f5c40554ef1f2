//go:build linux && root

// Package smalldisk has disks that a test can fill.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
)

// Mount mounts a file system of its own for the test, which everybody may write to, and returns its directory.
func Mount(t testing.TB, megabytes int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "millbridge-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0777", megabytes)); err != nil {
		t.Fatalf("mount a file system of %d MB: %v; run it as root in a place that may mount: sudo make faults, or docker run --privileged", megabytes, err)
	}
	t.Cleanup(func() {
		// A server that has just ended may still have files open.
		testkit.Eventually(t, time.Minute, func() error { return syscall.Unmount(dir, 0) })
	})
	return dir
}

// FillUp takes the rest of a file system; the returned function gives it back.
func FillUp(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	_ = f.Close() // the disk is full
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}
