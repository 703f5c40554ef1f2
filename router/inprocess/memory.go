package inprocess

import "time"

// memory keeps values by a hash until they are forgotten, a fixed time after they were put to rest. It needs a lock.
type memory[V any] struct {
	keep    time.Duration
	entries map[[32]byte]*remembered[V]
	resting []rest // in the order in which they are forgotten
}

type remembered[V any] struct {
	value V
	until time.Time // forgotten then; zero: not put to rest
}

type rest struct {
	hash  [32]byte
	until time.Time
}

func newMemory[V any](keep time.Duration) *memory[V] {
	return &memory[V]{keep: keep, entries: make(map[[32]byte]*remembered[V])}
}

// get returns what is known at this time, nil if nothing is.
func (m *memory[V]) get(hash [32]byte, now time.Time) *V {
	m.forget(now)
	if r := m.entries[hash]; r != nil {
		return &r.value
	}
	return nil
}

// put remembers a value, until it is put to rest and beyond.
func (m *memory[V]) put(hash [32]byte, value V) *V {
	r := &remembered[V]{value: value}
	m.entries[hash] = r
	return &r.value
}

// rest lets a value be forgotten after the time of keeping.
func (m *memory[V]) rest(hash [32]byte, now time.Time) {
	if r := m.entries[hash]; r != nil {
		r.until = now.Add(m.keep)
		m.resting = append(m.resting, rest{hash, r.until})
	}
}

// wake takes a value back from its rest.
func (m *memory[V]) wake(hash [32]byte) {
	if r := m.entries[hash]; r != nil {
		r.until = time.Time{}
	}
}

func (m *memory[V]) forget(now time.Time) {
	for len(m.resting) > 0 && !m.resting[0].until.After(now) {
		first := m.resting[0]
		m.resting = m.resting[1:]
		if r := m.entries[first.hash]; r != nil && r.until.Equal(first.until) { // else it has been used again since
			delete(m.entries, first.hash)
		}
	}
}
