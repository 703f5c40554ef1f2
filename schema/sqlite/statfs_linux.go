package sqlite

import (
	"fmt"
	"path/filepath"
	"syscall"
)

// networks are the kinds of file systems that other machines may write to, as statfs numbers them.
var networks = map[int64]string{
	0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x564C: "NCP", 0x5346414F: "AFS", 0x6B414653: "AFS",
	0x73757245: "Coda", 0x00C36400: "Ceph", 0x0BD00BD0: "Lustre", 0x47504653: "GPFS", 0x7461636F: "OCFS2", 0x01161970: "GFS2",
}

// networkFileSystem names the kind of the file system that the file is on; empty for a local one.
func networkFileSystem(file string) (kind string, err error) {
	if file == "" {
		return "", nil
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(file), &st); err != nil {
		return "", fmt.Errorf("look at the file system of %s: %w", file, err)
	}
	return networks[int64(st.Type)&0xFFFFFFFF], nil
}
