package subscribers

import (
	"context"
	"sync"
)

// slots counts the free places for messages of one subscription.
type slots struct {
	more chan struct{} // signals that free was raised

	mu   sync.Mutex
	free int
}

func newSlots(n int) *slots { return &slots{free: n, more: make(chan struct{}, 1)} }

// takeAll takes all free places, at least one, and returns how many; 0 when ctx ends first.
func (s *slots) takeAll(ctx context.Context) int {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := s.free
		s.free = 0
		s.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-s.more:
		case <-ctx.Done():
		}
	}
	return 0
}

// give returns n places.
func (s *slots) give(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}
