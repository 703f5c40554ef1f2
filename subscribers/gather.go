package subscribers

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// gathering is the wait of a process that begins to consume for what the server has handed out before: to a process that
// has died, or that has given it back. It comes in any order. Until all of it is in hand, nothing is handed out.
//
// The server does not say which messages these are, only how many, so each is counted when it comes again. Whatever of
// them another process settles meanwhile does not come: see [line.check].
type gathering struct {
	out  int                 // how many were handed out and not settled when it began
	last uint64              // the highest sequence that was handed out by then
	back map[uint64]struct{} // what has come again
}

// survey begins to gather. Nothing is in hand, and no request of this process waits at the server: whatever comes was
// handed out after this.
func (l *line) survey(ctx context.Context) error {
	cons, err := l.sub.js.Consumer(ctx, l.sub.cfg.Stream, l.sub.spec.Durable)
	if err != nil {
		return fmt.Errorf("look up consumer %s of stream %s: %w", l.sub.spec.Durable, l.sub.cfg.Stream, err)
	}
	info := cons.CachedInfo()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.gathering, l.created, l.next = true, nil, info.Created, info.Delivered.Consumer+1
	if info.NumAckPending > 0 {
		l.gathering = &gathering{out: info.NumAckPending, last: info.Delivered.Stream, back: make(map[uint64]struct{})}
		l.sub.log.Info("waiting for what was handed out before", "messages", info.NumAckPending)
	}
	l.size = max(l.order.Window, info.NumAckPending)
	return nil
}

// arrived looks at a delivery's number. One that was left out went to another process, or was lost with a connection: it
// may be of any message. The caller holds the lock.
func (l *line) arrived(d *Delivery) {
	inTurn := d.number == l.next
	l.next = d.number + 1
	if !l.known {
		return
	}
	if !inTurn {
		l.again(errElsewhere)
		return
	}
	if g := l.gathering; g != nil && d.Sequence <= g.last {
		if g.back[d.Sequence] = struct{}{}; len(g.back) >= g.out {
			l.gathering = nil
			l.sub.log.Info("all that was handed out before is here", "messages", g.out)
		}
	}
}

// again ends the consuming to gather from the beginning. The caller holds the lock.
func (l *line) again(why error) {
	l.known = false
	if l.stop != nil {
		l.stop(why)
	}
}

// check looks at what the server says while this process consumes, and returns what keeps messages from being handed out.
func (l *line) check(have *jetstream.ConsumerInfo) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || !l.consuming {
		return nil
	}
	if g := l.gathering; g != nil {
		missing := g.out - len(g.back)
		if have.Created.Equal(l.created) && have.Delivered.Consumer+1 == l.next { // all that it counts has arrived
			behind := 0
			for seq := range l.q.bySeq {
				if seq > g.last {
					behind++
				}
			}
			// Others have settled some. Whether that is what has not come yet cannot be told from outside.
			if settled := g.out + behind - have.NumAckPending; settled > 0 && missing <= settled {
				l.again(errGathered)
				return nil
			}
		}
		return fmt.Errorf("waiting for %d messages that were handed to another process before; they come when it gives them back, or %v after its end",
			missing, l.sub.cfg.AckWait)
	}
	if full := len(l.q.bySeq) >= l.order.Window || l.q.bytes >= l.order.WindowBytes; full && l.q.idle() {
		return fmt.Errorf("all %d messages in hand wait for their next try, and no more fit in", len(l.q.bySeq))
	}
	return nil
}

var errAnew = errors.New("the consumer was made anew")
