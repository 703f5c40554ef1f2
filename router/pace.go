package router

import (
	"sync"
	"time"
)

// pace spaces the starts of handlers evenly. Its zero value sets no limit.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time
}

func newPace(perSecond float64) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{every: time.Duration(float64(time.Second) / perSecond)}
}

// turn takes the next start and returns how long to wait for it.
func (p *pace) turn(now time.Time) time.Duration {
	if p.every == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	return wait
}
