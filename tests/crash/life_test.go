//go:build linux

package crash

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A slot is one process at a time, with one fate after the other.
type slot struct {
	w        *world
	role     role
	name     string
	next     func() (fate, bool)
	patience time.Duration // until a place must be reached
	strict   bool          // a place that is not reached is a fault
}

// run lives one life after the other until there is no fate any more, tells so, and lives on unharmed until all is over.
func (s *slot) run(over <-chan struct{}, tell func()) {
	tell = sync.OnceFunc(tell)
	defer tell()
	for {
		select {
		case <-over:
			return
		default:
		}
		f, ok := s.next()
		if !ok {
			tell()
			f.kind = untilDone
		}
		s.live(f, over)
	}
}

type ending int

const (
	ended ending = iota
	late
	isOver
)

func await(p *process, over <-chan struct{}, d time.Duration) ending {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return ended
	case <-over:
		return isOver
	case <-timer.C:
		return late
	}
}

func (s *slot) live(f fate, over <-chan struct{}) {
	w := s.w
	if f.successor != nil {
		defer f.successor()
	}
	p, err := w.start(s.role, s.name, f.env(w.zombieTime))
	if err != nil {
		w.fault("%s does not start: %v", s.name, err)
		return
	}
	defer p.kill() // whatever happens
	switch f.kind {
	case killedAt:
		s.killedAt(p, f, over)
	case killed:
		if s.await(p, over, f.after) == late {
			s.killNow(p)
		}
	case zombie:
		if s.await(p, over, f.after) == late {
			p.signal(syscall.SIGSTOP)
			s.wakeLater(p, f)
		}
	case zombieAt:
		for limit := time.Now().Add(s.patience); !p.isStopped(); {
			if e := s.await(p, over, 20*time.Millisecond); e != late {
				return
			}
			if time.Now().After(limit) {
				s.missed(p, f)
				return
			}
		}
		s.wakeLater(p, f)
	case slowAt:
		if s.await(p, over, s.patience+w.zombieTime) == late {
			w.tally.add(func(t *totals) { t.Slow++ })
			s.killNow(p)
		}
	case asked:
		if s.await(p, over, f.after) == late {
			s.stop(p)
		}
	case untilDone:
		for s.await(p, over, time.Hour) == late {
		}
	}
}

// await waits; a process that ends by itself is a fault, and when all is over it is asked to stop.
func (s *slot) await(p *process, over <-chan struct{}, d time.Duration) ending {
	e := await(p, over, d)
	switch e {
	case ended:
		s.unasked(p)
	case isOver:
		s.stop(p)
	}
	return e
}

func (s *slot) killedAt(p *process, f fate, over <-chan struct{}) {
	switch await(p, over, s.patience) {
	case ended:
		if !p.killed() {
			s.unasked(p)
			return
		}
		s.w.died(s.role)
		s.w.tally.add(func(t *totals) { t.Cycles++; t.Kills[string(f.point)]++ })
	case late:
		s.missed(p, f)
	case isOver:
		s.stop(p)
	}
}

// missed kills a process that has not come to its place in time.
func (s *slot) missed(p *process, f fate) {
	if s.strict {
		s.w.fault("%s does not come to %s\n%s", s.name, f.point, p.output())
	}
	s.killNow(p)
}

func (s *slot) killNow(p *process) {
	p.kill()
	s.w.died(s.role)
	s.w.tally.add(func(t *totals) { t.Cycles++; t.Kills["random"]++ })
}

// wakeLater lets a stopped process go on when its leases are long over, and then asks it to stop.
func (s *slot) wakeLater(p *process, f fate) {
	s.w.died(s.role)
	if f.successor == nil {
		<-time.After(s.w.zombieTime)
	} else {
		s.succeeded(f)
	}
	p.signal(syscall.SIGCONT)
	s.w.tally.add(func(t *totals) { t.Cycles++; t.Zombies++ })
	if p.endsWithin(1500 * time.Millisecond) {
		s.unasked(p)
		return
	}
	s.stop(p)
}

// succeeded waits at least as long, and until somebody has taken over a shard. On SQLite nobody can: the owner is who has
// the file's lock, which it keeps in its sleep.
func (s *slot) succeeded(f fate) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	takeovers := func() (n int64, err error) {
		if s.w.pool == nil {
			return 0, nil
		}
		return s.w.count(ctx, `SELECT coalesce(max(n), 0) FROM millbridge.owners`)
	}
	before, err := takeovers()
	f.successor()
	<-time.After(s.w.zombieTime)
	for now := before; err == nil && s.w.pool != nil && now == before; now, err = takeovers() {
		<-time.After(20 * time.Millisecond)
	}
	if err != nil {
		s.w.fault("nobody takes over from %s in its sleep: %v", s.name, err)
	}
}

// stop asks a process to stop: it must do so in time, and say so if it had to leave something unfinished.
func (s *slot) stop(p *process) {
	p.signal(syscall.SIGTERM)
	gone := false
	for limit := time.Now().Add(2 * time.Minute); !gone && time.Now().Before(limit); {
		p.signal(syscall.SIGCONT) // it may have stopped itself, or do so on its way out
		gone = p.endsWithin(100 * time.Millisecond)
	}
	if !gone {
		p.signal(syscall.SIGQUIT) // to see what it is doing
		p.endsWithin(2 * time.Second)
		s.w.fault("%s does not stop\n%s", s.name, p.output())
		return
	}
	s.w.lives.Add(1)
	s.w.tally.add(func(t *totals) { t.Cycles++; t.Stops++ })
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && s.role != operator && !p.killed() && !s.startedLate(p) &&
		!strings.Contains(p.output(), "did not finish") {
		s.w.fault("%s was asked to stop and ended with %d\n%s", s.name, code, p.output())
	}
}

// startedLate reports whether a process was asked to stop before it had taken over the signal.
func (s *slot) startedLate(p *process) bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM && strings.TrimSpace(p.output()) == s.name+".log:"
}

// unasked is for a process that has ended by itself. Only a command may.
func (s *slot) unasked(p *process) {
	if s.role == operator {
		s.w.tally.add(func(t *totals) { t.Commands++ })
		return
	}
	s.w.fault("%s has ended by itself: %v\n%s", s.name, p.cmd.ProcessState, p.output())
	<-time.After(time.Second)
}

// slot makes a slot of the world.
func (w *world) slot(r role, n int, patience time.Duration, next func() (fate, bool)) *slot {
	return &slot{w: w, role: r, name: fmt.Sprintf("%s-%d", r, n), next: next, patience: patience}
}

// inOrder gives out fates one by one.
func inOrder(fates ...fate) func() (fate, bool) {
	return func() (fate, bool) {
		if len(fates) == 0 {
			return fate{}, false
		}
		f := fates[0]
		fates = fates[1:]
		return f, true
	}
}
