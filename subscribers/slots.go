package subscribers

import (
	"sync/atomic"
	"time"
)

const (
	// askEvery is how often a few messages are asked for at most, so that quick handlers do not cost a request for each.
	askEvery = time.Millisecond
	// aheadTime is for how long a message may wait here for its turn, at the rate of the last time. It is longer than a
	// request takes, so that quick handlers are never idle, and too short to keep messages from another process.
	aheadTime = 20 * time.Millisecond
	// paceEvery is how often that rate is looked at.
	paceEvery = aheadTime / 2
	// maxAhead bounds what waits here.
	maxAhead = 512
)

// slots counts the places for messages of one subscription: one for each that may be handled, and some for those that
// will be within [aheadTime]. Only the one who asks for messages calls want; a message takes its place when it arrives.
type slots struct {
	most int           // that may be handled
	more chan struct{} // signals that there is room again

	taken   atomic.Int64
	settled atomic.Int64 // how many places were ever given back
	wake    atomic.Int64 // how many places are taken when there is room again

	ahead  int
	asked  time.Time // when messages were asked for last
	looked time.Time // when the rate was looked at last
	before int64     // what settled was then
}

func newSlots(n int) *slots {
	s := &slots{most: n, more: make(chan struct{}, 1), looked: time.Now()}
	s.wake.Store(-1)
	return s
}

func (s *slots) take() { s.taken.Add(1) }

func (s *slots) give() {
	s.settled.Add(1)
	if s.taken.Add(-1) == s.wake.Load() {
		signal(s.more)
	}
}

// want returns how many messages to ask for while so many are asked for already. If there are some, but too few for a
// request, it says when they are not.
func (s *slots) want(waiting int) (n int, wait time.Duration) {
	now := time.Now()
	if passed := now.Sub(s.looked); passed >= paceEvery {
		settled := s.settled.Load()
		s.ahead = int(min((settled-s.before)*int64(aheadTime)/int64(passed), maxAhead))
		s.looked, s.before = now, settled
	}
	all := s.most + s.ahead
	if waiting > all/2 {
		s.wake.Store(-1)
		return 0, 0
	}
	few := max(s.ahead/2, 1)
	s.wake.Store(int64(all - waiting - few))
	free := all - waiting - int(s.taken.Load())
	if free < few {
		return 0, 0
	}
	if wait = s.asked.Add(askEvery).Sub(now); free < all/4 && wait > 0 {
		return 0, wait
	}
	s.asked = now
	return free, 0
}
