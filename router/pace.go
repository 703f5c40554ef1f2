package router

import (
	"context"
	"fmt"
	"time"
)

// paceAhead is how much of a handler's rate one process takes at a time: enough to ask the database seldom, and little
// enough not to keep it from the others.
const paceAhead = 200 * time.Millisecond

// starts hands out the starts of a handler to all processes.
type starts interface {
	Take(ctx context.Context, name string, every time.Duration, n int) (wait time.Duration, err error)
}

// pace spaces the starts of a handler evenly, over all processes. Its zero value sets no limit.
type pace struct {
	every  time.Duration
	batch  int
	starts starts
	turn   chan struct{} // held by who looks at the fields below

	next time.Time // the first start that was taken and is not used
	left int       // how many there are
}

func newPace(perSecond float64, starts starts) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	every := time.Duration(float64(time.Second) / perSecond)
	return &pace{every: every, batch: int(max(paceAhead/max(every, 1), 1)), starts: starts, turn: make(chan struct{}, 1)}
}

// pop uses the next start. One whose time has passed is lost: many of them would make a burst.
func (p *pace) pop(now time.Time) (at time.Time, ok bool) {
	if late := now.Sub(p.next); p.left > 0 && late >= p.every {
		lost := min(int(late/p.every), p.left)
		p.left -= lost
		p.next = p.next.Add(time.Duration(lost) * p.every)
	}
	if p.left == 0 {
		return time.Time{}, false
	}
	at = p.next
	p.left--
	p.next = p.next.Add(p.every)
	return at, true
}

// awaitTurn waits until the handler's rate lets r start; false if it should not begin any more. While the database is
// away nothing starts: whoever knows the others' starts is not there.
func (c *chain) awaitTurn(r *run) bool {
	if c.pace.every == 0 {
		return true
	}
	if !c.take(c.pace.turn) {
		return false
	}
	at, ok := c.nextTurn(r)
	<-c.pace.turn
	if !ok {
		return false
	}
	wait := at.Sub(c.runs.now())
	return wait <= 0 || c.runs.pauseUnlessStopping(r, wait)
}

func (c *chain) nextTurn(r *run) (time.Time, bool) {
	p := c.pace
	for pause := c.firstPause; ; pause = min(2*pause, maxPause) {
		if at, ok := p.pop(c.runs.now()); ok {
			return at, true
		}
		ctx, cancel := context.WithTimeout(c.runs.intake, storeTimeout)
		wait, err := p.starts.Take(ctx, c.name, p.every, p.batch)
		cancel()
		if err == nil { // the time that the answer took makes the starts later and not denser
			p.next, p.left = c.runs.now().Add(wait), p.batch
			continue
		}
		if c.runs.intake.Err() != nil {
			return time.Time{}, false
		}
		c.stats.fault(fmt.Errorf("take a start: %w", err))
		if !c.runs.pauseUnlessStopping(r, pause) {
			return time.Time{}, false
		}
	}
}
