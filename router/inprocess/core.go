package inprocess

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// core is a queue without the type of its transactions. Methods that do not lock mu are called with it locked.
type core struct {
	cfg     Config
	changed chan struct{} // has a token when something has happened that a drain may wait for

	mu      sync.Mutex
	lanes   []*lane
	names   map[string]*lane
	kept    int        // messages in the queue, dead and parked ones included
	entered int64      // numbers what waits, for its order
	intake  []*message // on their way, but not yet with their lanes
	waiting waitings
	keys    *memory[usedKey] // explicit ones, by KeyHash
	parked  []parked
	letters []schema.DeadLetter
	tally   Tally
	running int
	session *session // nil unless it runs
	alarm   alarm
	notices []schema.DeadLetter // for Config.OnDead, once mu is free
}

// session is one Run or Drain.
type session struct {
	ctx    context.Context         // of the runs; it does not end with the caller's
	cut    context.CancelCauseFunc // ends it
	before Tally
	closed bool // nothing is started any more
}

type alarm struct {
	at   time.Time
	stop func() bool
}

func newCore(cfg Config) *core {
	return &core{
		cfg: cfg, changed: make(chan struct{}, 1), names: make(map[string]*lane), keys: newMemory[usedKey](cfg.KeepKeys),
	}
}

func (c *core) now() time.Time { return c.cfg.Clock.Now().UTC() }

// unlock ends a change and calls OnDead.
func (c *core) unlock() {
	notices := c.notices
	c.notices = nil
	c.mu.Unlock()
	for _, letter := range notices {
		c.contain("on dead", func() { c.cfg.OnDead(letter) })
	}
}

// signal tells the drain that waits that something has happened.
func (c *core) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// contain keeps a panic of somebody else's function from ending the process.
func (c *core) contain(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Logger.Error("panic contained", "where", what, "panic", fmt.Sprint(v))
		}
	}()
	f()
}

func (c *core) add(l *lane) error {
	if err := l.check(c.cfg); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	if c.session != nil {
		return fmt.Errorf("add %s %q: %w", l.what, l.name, ErrBusy)
	}
	if other := c.names[l.name]; other != nil {
		return fmt.Errorf("%s cannot be named %q: that is the name of %s", l.what, l.name, other.what)
	}
	l.chains, l.inbox = make(map[[32]byte][]*item), newMemory[record](c.cfg.KeepKeys)
	c.names[l.name] = l
	c.lanes = append(c.lanes, l)
	return nil
}

// dispatch brings what is due to its lanes, starts what may start, and sets the alarm for what comes next.
func (c *core) dispatch() {
	if c.session == nil || c.session.closed {
		return
	}
	now := c.now()
	for len(c.waiting) > 0 && !c.waiting[0].due.After(now) {
		w := heap.Pop(&c.waiting).(*waiting)
		if w.item != nil {
			w.item.lane.ready = append(w.item.lane.ready, w.item)
		} else {
			c.intake = append(c.intake, w.message)
		}
	}
	for again := true; again; again = len(c.intake) > 0 { // what is given up at its start may have to be reported
		for len(c.intake) > 0 {
			m := c.intake[0]
			c.intake = c.intake[1:]
			c.route(m)
		}
		for _, l := range c.lanes {
			c.startAll(l, now)
		}
	}
	c.setAlarm(now)
}

func (c *core) startAll(l *lane, now time.Time) {
	for l.mayStart(now) {
		it := l.ready[0]
		l.ready = l.ready[1:]
		if c.claim(it, now) {
			l.starts(now)
			c.running++
			go c.runItem(c.session, it)
		}
	}
}

// route gives a message to those who handle it.
func (c *core) route(m *message) {
	c.kept-- // counted again for each of them
	if r := m.env.Replay; r != nil {
		c.enter(c.names[r.Handler], m, "handler "+r.Handler)
		return
	}
	if m.env.Kind == schema.KindJob {
		l := c.names[m.env.Target]
		if l != nil && l.takes != nil {
			l = nil
		}
		c.enter(l, m, "target "+m.env.Target)
		return
	}
	for _, l := range c.lanes {
		if l.takes != nil && l.takes(m.env.Name) {
			c.enter(l, m, "")
		}
	}
}

func (c *core) enter(l *lane, m *message, wanted string) {
	c.kept++
	if l == nil {
		c.park(m, fmt.Sprintf("there is no %s here; there are %s", wanted, c.laneNames()), true)
		return
	}
	l.enter(&item{message: m, lane: l})
}

func (c *core) laneNames() string {
	if len(c.lanes) == 0 {
		return "none"
	}
	names := make([]string, len(c.lanes))
	for i, l := range c.lanes {
		names[i] = l.name
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// setAlarm has dispatch called again when the next thing can happen that nobody else would notice.
func (c *core) setAlarm(now time.Time) {
	at := c.next(now, true)
	if at.Equal(c.alarm.at) && c.alarm.stop != nil {
		return
	}
	c.stopAlarm()
	if !at.IsZero() {
		c.alarm = alarm{at, c.cfg.Clock.AfterFunc(at.Sub(now), c.tick)}
	}
}

func (c *core) stopAlarm() {
	if c.alarm.stop != nil {
		c.alarm.stop()
	}
	c.alarm = alarm{}
}

func (c *core) tick() {
	c.mu.Lock()
	defer c.unlock()
	c.alarm = alarm{}
	c.dispatch()
	c.signal()
}

// next returns when something waits for that may start later, zero if nothing does: what only its lane's rate holds
// back and, with all, also what waits for its next attempt, for its time or for a breaker.
func (c *core) next(now time.Time, all bool) time.Time {
	var first time.Time
	earlier := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, l := range c.lanes {
		if len(l.ready) == 0 {
			continue
		}
		if all || !l.held(now) {
			earlier(l.nextStart)
		}
		if all {
			earlier(l.openUntil)
		}
	}
	if all && len(c.waiting) > 0 {
		earlier(c.waiting[0].due)
	}
	return first
}

func (c *core) wait(w *waiting) {
	c.entered++
	w.n = c.entered
	heap.Push(&c.waiting, w)
}
