package subscribers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// hold is the time in which this process is the one that consumes.
type hold struct {
	until time.Time // by this process's clock; nobody else can have the lease before
	end   context.CancelFunc
	tasks sync.WaitGroup
}

func (h *hold) valid() bool { return h != nil && time.Now().Before(h.until) }

// consume is what [subscription.consume] is for others: it waits until this process is the one that consumes, gathers
// what was handed out before, and pulls until something is wrong or ctx ends. It can be called again, and goes on where
// it was if nothing has happened meanwhile.
func (l *line) consume(ctx context.Context) error {
	s := l.sub
	mine, known, late := l.standsOn()
	if late {
		l.letGo()
	}
	if !known && !l.empty(ctx) {
		return context.Cause(ctx)
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	if !mine {
		if err := l.acquire(ctx); err != nil {
			return err
		}
		if err := s.ensure(ctx); err != nil { // it may have been long
			return err
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if known && !l.created.Equal(s.created) {
		l.mu.Lock()
		l.again(errAnew)
		l.mu.Unlock()
		return errAnew
	}
	if !known {
		if err := l.survey(ctx); err != nil {
			return err
		}
	}
	if !l.begin(stop) {
		return errTakenOver
	}
	defer l.pause()
	return s.pullAll(ctx, stop, l.size, l)
}

// standsOn reports whether this process is the one that consumes, and whether what it knew is still true. When it cannot
// reach the server for too long (late) the lease is to be let go of: another process may be able to.
func (l *line) standsOn() (mine, known, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late = l.hold != nil && time.Since(l.heard) > l.sub.cfg.AckWait; late {
		l.lose()
	}
	return l.hold != nil, l.known, late
}

// begin lets messages be handed out; false if the lease is lost.
func (l *line) begin(stop context.CancelCauseFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return false
	}
	l.consuming, l.stop = true, stop
	l.dispatch()
	return true
}

// pause keeps messages from being handed out while nothing is heard from the server.
func (l *line) pause() {
	l.mu.Lock()
	l.consuming, l.stop, l.heard = false, nil, time.Now()
	l.mu.Unlock()
}

// acquire waits until this process has the lease.
func (l *line) acquire(ctx context.Context) error {
	for ctx.Err() == nil {
		asked := time.Now()
		held, left, err := l.ask(ctx)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.elsewhere = !held
		if held {
			l.takeOver(asked.Add(l.order.TTL))
		}
		l.mu.Unlock()
		if held {
			return nil
		}
		l.sub.report(nil)
		l.sub.hamper(nil)
		again := time.NewTimer(min(max(left, firstPause), l.order.TTL/8, 2*time.Second))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
	return context.Cause(ctx)
}

// leaseError is not the server's fault.
type leaseError struct{ error }

func (e *leaseError) Unwrap() error { return e.error }

func (l *line) ask(ctx context.Context) (held bool, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.order.TTL/3)
	defer cancel()
	held, left, err = l.order.Lease.Hold(ctx, l.name, l.owner, l.order.TTL)
	if err != nil {
		return false, 0, &leaseError{fmt.Errorf("take the order's lease %s: %w", l.name, err)}
	}
	return held, left, nil
}

// takeOver begins a hold. The caller holds the lock.
func (l *line) takeOver(until time.Time) {
	ctx, end := context.WithCancel(context.Background())
	h := &hold{until: until, end: end}
	l.hold, l.heard = h, time.Now()
	h.tasks.Go(func() { l.renew(ctx, h) })
	h.tasks.Go(func() {
		tick := time.NewTicker(l.sub.cfg.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.beat()
			case <-ctx.Done():
				return
			}
		}
	})
}

// renew keeps the lease until ctx ends or it is lost.
func (l *line) renew(ctx context.Context, h *hold) {
	tick := time.NewTicker(l.order.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		held, _, err := l.ask(ctx)
		l.mu.Lock()
		switch {
		case l.hold != h: // it has ended meanwhile
		case held:
			h.until = asked.Add(l.order.TTL)
			l.dispatch()
		case err == nil || time.Until(h.until) < l.order.TTL/3: // before the next renewal it may be somebody else's
			l.lose()
		}
		l.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			l.sub.log.Warn("the order's lease was not renewed", "error", schema.OneLine(err.Error()))
		}
	}
}

// lose ends the hold and what runs under it. The caller holds the lock.
func (l *line) lose() {
	l.hold.end()
	l.hold = nil
	for _, h := range l.q.bySeq {
		if h.running {
			h.cancel(errTakenOver)
		}
	}
	l.again(errTakenOver)
}

// finish gives everything back, waits for what runs and lets another process consume.
func (l *line) finish() {
	l.empty(l.sub.life)
	l.mu.Lock()
	h := l.hold
	l.hold = nil
	l.mu.Unlock()
	if h == nil {
		return
	}
	h.end()
	h.tasks.Wait()
	l.letGo()
}

func (l *line) letGo() {
	ctx, cancel := context.WithTimeout(context.Background(), min(l.order.TTL, 2*time.Second))
	defer cancel()
	if err := l.order.Lease.LetGo(ctx, l.name, l.owner); err != nil { // it ends by itself
		l.sub.log.Warn("the order's lease was not given back", "error", schema.OneLine(err.Error()))
	}
}
