package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// rereadEvery is how often an idle shard reads by itself. A look is only a hint; the reads make sure, and they let readers
// forget what was sent.
const rereadEvery = 2 * time.Second

// A lookout looks at the outbox for all shards of a process that have nothing to do, with one short statement in place of
// a read for each, and wakes those for which there is something.
type lookout struct {
	f      *Forwarder
	joined chan struct{} // a shard has begun to wait that a nudge may have been for

	mu      sync.Mutex
	waiting map[*watch]struct{}
}

// A watch is a shard that waits.
type watch struct {
	look  schema.Look
	found chan struct{} // closed when there may be something

	seen  any   // what a read would have found
	heard int64 // nudges before that
}

func newLookout(f *Forwarder) *lookout {
	return &lookout{f: f, joined: make(chan struct{}, 1), waiting: make(map[*watch]struct{})}
}

// await waits until there may be something to read, for d at most, or until one of the contexts ends. It reports whether
// to go on, and what there is if that is known. heard is how many nudges there were before the last read; before what was
// seen there were as many as it returns.
func (l *lookout) await(intake, ctx context.Context, look schema.Look, heard int64, d time.Duration) (seen any, before int64, goOn bool) {
	w := &watch{look: look, found: make(chan struct{})}
	l.mu.Lock()
	l.waiting[w] = struct{}{}
	l.mu.Unlock()
	if l.f.nudges.Load() != heard {
		signal(l.joined)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.found:
	case <-timer.C:
	case <-intake.Done():
	case <-ctx.Done():
	}
	l.mu.Lock()
	delete(l.waiting, w)
	l.mu.Unlock()
	return w.seen, w.heard, intake.Err() == nil && ctx.Err() == nil
}

// keep looks until ctx ends: at once after a nudge, and by itself, ever more seldom until a look that nobody asked for
// finds something. However many nudges come, two looks are a little apart, so that one finds what several transactions
// have left.
func (l *lookout) keep(ctx context.Context) {
	least, most := l.f.cfg.PollMin, l.f.cfg.PollMax
	timer := time.NewTimer(least)
	defer timer.Stop()
	pause := time.Duration(0)
	for found := time.Now(); ; {
		// A row waits for a small part of the time in which there was none, and seldom rows cost few looks.
		idle := min(max(time.Since(found)/4, least), most)
		timer.Reset(max(0, idle-pause))
		asked := true
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			asked = false
		case <-l.f.nudged:
		case <-l.joined:
		}
		began := time.Now()
		woken, err := l.once(ctx)
		if woken && !asked {
			found = began
		}
		pause = min(least, 2*time.Since(began))
		if err != nil {
			pause = most
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// once looks once and wakes the shards for which there may be something, or all of them if that cannot be told: what
// there is to say about the database, their reads say. woken is whether there was one.
func (l *lookout) once(ctx context.Context) (woken bool, err error) {
	l.mu.Lock()
	watches, looks := make([]*watch, 0, len(l.waiting)), make([]schema.Look, 0, len(l.waiting))
	for w := range l.waiting {
		watches, looks = append(watches, w), append(looks, w.look)
	}
	l.mu.Unlock()
	if len(looks) == 0 {
		return false, nil
	}
	heard := l.f.nudges.Load()
	sights, err := l.f.store.Peek(ctx, looks)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range watches {
		if _, waits := l.waiting[w]; waits && (err != nil || sights[i].Found) {
			if err == nil {
				w.seen, w.heard = sights[i].Seen, heard
			}
			delete(l.waiting, w)
			close(w.found)
			woken = true
		}
	}
	return woken, err
}

// signal puts a token into a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
