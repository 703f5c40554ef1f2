package subscribers

import (
	"context"
	"sync"
	"time"
)

// askEvery is how often a few places are asked for at most, so that quick handlers do not cost a request for each message.
const askEvery = time.Millisecond

// slots counts the free places for messages of one subscription.
type slots struct {
	more chan struct{} // signals that free was raised

	mu    sync.Mutex
	free  int
	few   int       // fewer than this are taken no more often than askEvery
	taken time.Time // when some were taken last
}

func newSlots(n int) *slots { return &slots{free: n, few: n / 4, more: make(chan struct{}, 1)} }

// takeAll takes all free places, at least one, and returns how many; 0 when ctx ends first.
func (s *slots) takeAll(ctx context.Context) int {
	for ctx.Err() == nil {
		n, wait := s.take(time.Now())
		if n > 0 {
			return n
		}
		var later <-chan time.Time
		if wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-s.more:
		case <-later:
		case <-ctx.Done():
		}
	}
	return 0
}

// take takes all free places, if there are enough of them now. Otherwise it says when a few are, too, unless there is none.
func (s *slots) take(now time.Time) (n int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return 0, 0
	}
	if wait = s.taken.Add(askEvery).Sub(now); s.free < s.few && wait > 0 {
		return 0, wait
	}
	n, s.free, s.taken = s.free, 0, now
	return n, 0
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
