package handlertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/handlertest"
)

func TestClock_calls_what_is_due_in_order(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	c := handlertest.NewClock(start)
	var got []time.Duration
	note := func() { got = append(got, c.Now().Sub(start)) }
	c.AfterFunc(3*time.Second, note)
	c.AfterFunc(time.Second, func() {
		note()
		c.AfterFunc(time.Second, note) // due on the same way
	})
	stop := c.AfterFunc(time.Second, note)
	late := c.AfterFunc(time.Hour, note)
	if !stop() || stop() {
		t.Error("a timer can be stopped once")
	}
	c.Advance(10 * time.Second)
	if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("called at %v, want %v", got, want)
	}
	c.SkipTo(start) // never back
	if now := c.Now(); now != start.Add(10*time.Second) {
		t.Errorf("the clock shows %v", now)
	}
	c.SkipTo(start.Add(2 * time.Hour))
	if late() || len(got) != 4 {
		t.Errorf("the last timer was not called: %v", got)
	}
	if handlertest.NewClock(time.Time{}).Now().IsZero() {
		t.Error("a new clock shows the zero time")
	}
}
