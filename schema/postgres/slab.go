package postgres

import "bytes"

// A slab is memory that many values share: for each of them to have its own costs more than to fill it.
type slab struct {
	free []byte
	size int // of the last piece
}

const (
	minSlab = 1 << 10
	maxSlab = 32 << 10
)

// keep returns a copy of v, which is no part of any other; nil for nil.
func (s *slab) keep(v []byte) []byte {
	if v == nil || len(v) > maxSlab/4 {
		return bytes.Clone(v)
	}
	if s.free == nil || len(v) > len(s.free) {
		s.size = min(max(2*s.size, minSlab, len(v)), maxSlab)
		s.free = make([]byte, s.size)
	}
	kept := s.free[:len(v):len(v)]
	copy(kept, v)
	s.free = s.free[len(v):]
	return kept
}

// bytesIn is a place for a column's bytes in a slab, as pgtype.BytesScanner.
type bytesIn struct {
	slab  *slab
	value []byte
}

func (b *bytesIn) ScanBytes(v []byte) error {
	b.value = b.slab.keep(v)
	return nil
}

// sameText is a place for a column of text that is mostly that of the row before, as pgtype.BytesScanner.
type sameText struct{ text string }

func (t *sameText) ScanBytes(v []byte) error {
	if string(v) != t.text {
		t.text = string(v)
	}
	return nil
}
