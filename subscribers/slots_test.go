package subscribers

import (
	"testing"
	"time"
)

// Nothing is asked for ahead until it is known how quickly messages are settled.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	wants := func(what string, asked, want int) {
		t.Helper()
		if n, wait := s.want(asked); n != want {
			t.Errorf("%s: %d are wanted (or in %v), want %d", what, n, wait, want)
		}
	}
	wants("all hands are free", 0, 10)
	wants("enough is on its way", 6, 0)
	for range 10 {
		s.take()
	}
	wants("no hand is free", 0, 0)
	s.give()
	s.asked = time.Now().Add(time.Hour)
	if n, wait := s.want(0); n != 0 || wait <= 0 {
		t.Errorf("a single hand is free soon after a request: %d are wanted in %v", n, wait)
	}
	s.asked = time.Time{}
	wants("a single hand is free", 0, 1)
	select {
	case <-s.more:
	default:
		t.Error("nobody is told that there is room")
	}

	s.taken.Store(10)
	s.looked, s.before = time.Now().Add(-time.Hour), s.settled.Load()-int64(time.Hour/aheadTime)*40
	wants("39 are settled in the time that may be asked ahead", 0, 39)
	wants("half of them are on their way", 26, 0)
	s.looked, s.before = time.Now().Add(-time.Hour), s.settled.Load()-int64(time.Hour/aheadTime)*1e6
	wants("as many as there are", 0, maxAhead)
	s.looked, s.before = time.Now().Add(-time.Hour), s.settled.Load()
	wants("all have become slow", 0, 0)
}
