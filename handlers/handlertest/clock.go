package handlertest

import (
	"slices"
	"sync"
	"time"
)

// A Clock stands still until it is moved. It is a clock for the in-process queue, which moves it to the next time that
// something is due when it has nothing else to do. Make one with [NewClock]. It is safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	next   int // number of the next timer
	timers []timer
}

type timer struct {
	at time.Time
	n  int
	f  func()
}

// NewClock returns a clock that shows start, or a fixed time of our choice if start is zero.
func NewClock(start time.Time) *Clock {
	if start.IsZero() {
		start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	return &Clock{now: start}
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc has f called when the clock has moved by d, by who moves it. With d of 0 or less that is the next move,
// however short. stop takes it back and returns false if f has been called.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	c.next++
	c.timers = append(c.timers, timer{c.now.Add(d), n, f})
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.timers)
		c.timers = slices.DeleteFunc(c.timers, func(t timer) bool { return t.n == n })
		return len(c.timers) < before
	}
}

// Advance moves the clock by d and calls what becomes due on the way, in order, each at its own time.
func (c *Clock) Advance(d time.Duration) { c.SkipTo(c.Now().Add(d)) }

// SkipTo moves the clock to t, as Advance does. It never goes back.
func (c *Clock) SkipTo(t time.Time) {
	for {
		c.mu.Lock()
		first := -1
		for i, x := range c.timers {
			if !x.at.After(t) && (first < 0 || x.at.Before(c.timers[first].at)) {
				first = i
			}
		}
		if first < 0 {
			if t.After(c.now) {
				c.now = t
			}
			c.mu.Unlock()
			return
		}
		due := c.timers[first]
		c.timers = slices.Delete(c.timers, first, first+1)
		if due.at.After(c.now) {
			c.now = due.at
		}
		c.mu.Unlock()
		due.f()
	}
}
