package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"

	"github.com/millbridge/millbridge/internal/filelock"
	"github.com/millbridge/millbridge/schema"
)

// forwarderLock is the file lock of all shards that this store owns.
type forwarderLock struct {
	file   *filelock.Lock // nil for a database without a file
	owners map[schema.ShardRef]string
}

// LockSuffix is appended to the name of the database file for the lock that a forwarder holds.
const LockSuffix = "-forwarder.lock"

// lockForwarder holds the lock beside the database for the owner of a shard; false while another store holds it.
func (s *Store) lockForwarder(ctx context.Context, ref schema.ShardRef, token string) (bool, error) {
	s.mu.Lock()
	held := s.held
	if held != nil {
		held.owners[ref] = token
	}
	s.mu.Unlock()
	if held != nil {
		return true, nil
	}
	name, err := s.fileName(ctx)
	if err != nil {
		return false, err
	}
	s.mu.Lock() // also while the lock is asked for, which waits for nobody: another shard of ours must not take us for another store
	defer s.mu.Unlock()
	if s.held == nil {
		var file *filelock.Lock
		if name != "" { // a database in memory belongs to its process
			file, err = filelock.Acquire(name + LockSuffix)
		}
		if errors.Is(err, filelock.ErrHeld) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		s.held = &forwarderLock{file: file, owners: make(map[schema.ShardRef]string)}
	}
	s.held.owners[ref] = token
	return true, nil
}

// fileName returns the name of the database's file, with links resolved; empty for a database in memory.
func (s *Store) fileName(ctx context.Context) (string, error) {
	var name sql.NullString
	err := s.read.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&name)
	return name.String, err
}

func (s *Store) releaseForwarder(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return
	}
	maps.DeleteFunc(s.held.owners, func(_ schema.ShardRef, owner string) bool { return owner == token })
	if len(s.held.owners) == 0 {
		s.held.file.Release()
		s.held = nil
	}
}

func (s *Store) unlockForwarder() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.held.file.Release()
		s.held = nil
	}
}
