package inprocess

import (
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// claim asks the handler's inbox whether an item may run. If not, it is settled or waits for the message that has its
// key.
func (c *core) claim(it *item, now time.Time) bool {
	l := it.lane
	if l.policy.Mode == handlers.ModeNone {
		return true
	}
	hash := schema.InboxKeyOf(l.name, it.env).Hash()
	replay := 0
	if it.env.Replay != nil {
		replay = it.env.Replay.Number
	}
	r := l.inbox.get(hash, now)
	switch {
	case r == nil:
		l.inbox.put(hash, record{owner: it, id: it.id(), body: it.env.BodyHash(), replay: replay, state: schema.InboxRunning})
		return true
	case r.owner == it:
		return true
	case r.body != it.env.BodyHash():
		c.bury(it, schema.CauseKeyReused, fmt.Sprintf("%v: message %s used the key first", schema.ErrKeyReused, r.id), "")
	case r.owner != nil:
		r.followers = append(r.followers, it)
	case replay > r.replay:
		r.owner, r.replay, r.state = it, replay, schema.InboxRunning
		l.inbox.wake(hash)
		return true
	case r.state == schema.InboxDead && replay == r.replay:
		c.bury(it, r.cause, r.reason, "")
	default:
		c.cfg.Logger.Debug("dropped unhandled: its key is handled", it.fields()...)
		c.done(it)
	}
	return false
}

// settled writes down how an item with a key has ended and lets those go on that waited for that.
func (c *core) settled(it *item, state schema.InboxState, cause schema.Cause, reason string) {
	l := it.lane
	hash := schema.InboxKeyOf(l.name, it.env).Hash()
	now := c.now()
	r := l.inbox.get(hash, now)
	if r == nil || r.owner != it {
		return
	}
	r.owner, r.state, r.cause, r.reason = nil, state, cause, reason
	l.ready = append(r.followers, l.ready...)
	r.followers = nil
	l.inbox.rest(hash, now)
}

// done takes an item out of the queue.
func (c *core) done(it *item) {
	c.kept--
	it.lane.leave(it)
}
