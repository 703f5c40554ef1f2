package postgres

import (
	"context"
	"strings"
)

// AwaitFlush waits until the log is on disk up to a place in it, in one epoch of the database.
func (s *Store) AwaitFlush(ctx context.Context, identity string, written int64) (same bool, err error) {
	return s.awaitFlush(ctx, answer{identity: identity, written: written})
}

// ForceFlush forces commits to disk.
func (s *Store) ForceFlush(ctx context.Context) error { return s.forceFlush(ctx) }

// ObserveWithoutTransaction makes observations that trust a snapshot alone to name all transactions that are open.
func (s *Store) ObserveWithoutTransaction() {
	s.horizon.query = strings.Replace(sqlObserve, `pg_current_xact_id()`, `pg_snapshot_xmax(pg_current_snapshot())`, 1)
}

// LookAt has each look take at most n rows.
func (m *Stock) LookAt(n int) { m.most = n }

// Slab is a slab.
type Slab struct{ s slab }

// Keep is slab.keep.
func (s *Slab) Keep(v []byte) []byte { return s.s.keep(v) }
