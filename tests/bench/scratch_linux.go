package main

import (
	"os"
	"syscall"
)

// inMemory puts the servers' data into memory if there is room, unless somebody has said where it is to be: for a run
// whose figures mean nothing.
func inMemory() error {
	const memory, enough = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < enough {
		return nil
	}
	return os.Setenv("TMPDIR", memory)
}
