package testkit

import (
	"context"
	"sync"
	"time"
)

// Leases gives names to owners as the stores do, within one test. Its zero value works.
type Leases struct {
	mu    sync.Mutex
	owned map[string]lease
	down  error
}

type lease struct {
	owner string
	until time.Time
}

// Hold takes a name for ttl, or renews that.
func (l *Leases) Hold(_ context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		return false, 0, l.down
	}
	now := time.Now()
	if have := l.owned[name]; have.owner != owner && have.until.After(now) {
		return false, have.until.Sub(now), nil
	}
	if l.owned == nil {
		l.owned = make(map[string]lease)
	}
	l.owned[name] = lease{owner, now.Add(ttl)}
	return true, ttl, nil
}

// LetGo gives a name back.
func (l *Leases) LetGo(_ context.Context, name, owner string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owned[name].owner == owner {
		delete(l.owned, name)
	}
	return l.down
}

// Fail makes all calls fail with err; nil ends that.
func (l *Leases) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = err
}

// Steal ends all leases, as if their time were over.
func (l *Leases) Steal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.owned)
}
