package postgres

import "context"

// AwaitFlush waits until the log is on disk up to a place in it, in one epoch of the database.
func (s *Store) AwaitFlush(ctx context.Context, identity string, written int64) (same bool, err error) {
	return s.awaitFlush(ctx, answer{identity: identity, written: written})
}

// ForceFlush forces commits to disk.
func (s *Store) ForceFlush(ctx context.Context) error { return s.forceFlush(ctx) }
