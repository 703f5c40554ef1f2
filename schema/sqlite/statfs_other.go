//go:build !linux

package sqlite

// networkFileSystem names the kind of the file system that the file is on; empty if it is local or cannot be told.
func networkFileSystem(string) (kind string, err error) { return "", nil }
