//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// identity returns whom the server runs as: nil for this user, or, because PostgreSQL refuses to run as root, the
// first of the users postgres and nobody that exists.
func identity() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read the ids of user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// newDir makes a directory that the server's user owns and can enter and remove. A temporary directory below somebody's
// home does not do for another user, so every parent is looked at.
func newDir(as *syscall.Credential) (string, error) {
	return newDirIn(as, os.TempDir(), "/tmp", "/var/tmp")
}

// newDirIn is newDir with the parents to try.
func newDirIn(as *syscall.Credential, parents ...string) (string, error) {
	for _, parent := range parents {
		if as != nil && !public(parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "millbridge-pg-")
		if err != nil {
			continue
		}
		if as == nil {
			return dir, nil
		}
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return "", errors.Join(fmt.Errorf("give the directory to the server's user: %w", err), os.Remove(dir))
		}
		return dir, nil
	}
	return "", fmt.Errorf("no temporary directory that the server's user can enter: tried %v", parents)
}

// public says whether everybody may pass through all parents of the directory and make and remove entries in it.
func public(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for need := fs.FileMode(0o003); ; need = 0o001 {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&need != need {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}
