package subscribers

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// line is what an ordered subscription has in hand, and what it knows of what others have.
//
// The first message of a key is handed out only while everything that the server counts as handed out is in hand here or
// settled. Then whatever comes later is behind it, or was settled before: once a message may be handed out, nothing can
// make that wrong. So it does not matter when a process notices that another one has taken over.
type line struct {
	sub         *subscription
	order       *Order
	name, owner string
	room, ended chan struct{} // signal that there is room for more, and that a run has ended

	mu        sync.Mutex
	q         *queues
	size      int       // how many messages may be in hand
	full      bool      // room is waited for
	asked     time.Time // when messages were asked for last
	running   int
	hold      *hold // nil unless this process consumes
	elsewhere bool  // another process consumes
	consuming bool
	heard     time.Time               // until when it was consuming
	stop      context.CancelCauseFunc // ends the consuming
	known     bool                    // what is handed out elsewhere is known, see gathering
	gathering *gathering              // nil once all of it is in hand
	created   time.Time               // of the consumer
	next      uint64                  // the number of the consumer's next delivery, whoever gets it
}

func newLine(s *subscription) *line {
	return &line{
		sub: s, order: s.cfg.Order, name: "order/" + s.cfg.Stream + "/" + s.spec.Durable, owner: schema.NewID(),
		room: make(chan struct{}, 1), ended: make(chan struct{}, 1), q: newQueues(), size: s.cfg.Order.Window,
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// want asks for all that there is room for, one request at a time: what others had in hand must fit in, and the bytes of
// what is on its way are not known.
func (l *line) want(asked int) (n, bytes int, wait time.Duration) {
	if asked > 0 {
		return 0, 0, 0
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	n = l.size - len(l.q.bySeq)
	left, all := l.order.WindowBytes-l.q.bytes, l.gathering != nil
	if l.full = n <= 0 || !all && left <= 0; l.full {
		return 0, 0, 0
	}
	if wait = l.asked.Add(askEvery).Sub(now); n < l.size/4 && wait > 0 {
		return 0, 0, wait
	}
	l.asked = now
	if all {
		return n, 0, 0
	}
	return n, max(left, int(l.sub.js.Conn().MaxPayload())+schema.MaxHeaderBytes), 0
}

func (l *line) more() <-chan struct{} { return l.room }

// isRoom wakes who waits for room. The caller holds the lock.
func (l *line) isRoom() {
	if l.full {
		l.full = false
		signal(l.room)
	}
}

// receive takes a message in hand.
func (l *line) receive(m *nats.Msg) {
	d, err := newDelivery(m)
	if err != nil {
		l.sub.log.Error("a message without delivery data was ignored", "error", schema.OneLine(err.Error()))
		return
	}
	key := l.order.Key(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.q.add(m, d, key)
	l.arrived(d)
	l.dispatch()
}

// dispatch hands out what may be. The caller holds the lock.
func (l *line) dispatch() {
	for l.consuming && l.known && l.gathering == nil && l.hold.valid() && l.sub.ctx.Err() == nil && l.running < l.sub.cfg.MaxInFlight {
		h := l.q.next()
		if h == nil {
			return
		}
		l.running++
		l.sub.senders.Add(1)
		l.sub.wg.Add(1)
		d := h.d.again(h.hands)
		ctx, cancel := context.WithCancelCause(context.WithValue(l.sub.base, deliveryKey{}, d))
		h.cancel = cancel
		msg := d.message(l.sub.cfg.Bare)
		msg.SetContext(ctx)
		go func() {
			defer l.sub.wg.Done()
			defer cancel(nil)
			l.run(h, d, msg)
		}()
	}
}

// run hands a message out and waits for what its receiver says.
func (l *line) run(h *held, d *Delivery, msg *message.Message) {
	s := l.sub
	handedOut := false
	select {
	case s.out <- msg:
		handedOut = true
	case <-s.ctx.Done():
	case <-msg.Context().Done():
	}
	s.senders.Done()
	if !handedOut {
		l.back(h, nil)
		return
	}
	abandon := s.abandon
	for {
		select {
		case <-msg.Acked():
			done := l.handling(h)
			done.ack()
			<-done.ended
			l.forget(h)
			return
		case <-msg.Nacked():
			wait := max(time.Duration(d.retryIn.Load()), firstPause)
			l.back(h, &wait)
			return
		case <-abandon:
			h.cancel(errCloseTimeout)
			abandon = nil
		case <-s.life.Done():
			s.unfinished.Add(1)
			l.forget(h)
			return
		}
	}
}

// handling is the message as the server knows it last.
func (l *line) handling(h *held) *handling {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &handling{subscription: l.sub, m: h.m, d: h.d, alive: h.alive, ended: make(chan struct{})}
}

// back ends a run whose message is not settled: it waits here for its next try, or is given back if everything is.
func (l *line) back(h *held, wait *time.Duration) {
	l.mu.Lock()
	if h.leaving {
		l.mu.Unlock()
		l.handling(h).nak(0)
		l.forget(h)
		return
	}
	defer l.mu.Unlock()
	if wait != nil {
		h.hands++
		h.waiting = time.AfterFunc(*wait, func() { l.due(h) })
	}
	l.q.back(h)
	l.runEnded()
}

// due ends the wait of a message.
func (l *line) due(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.q.bySeq[h.d.Sequence] == h {
		h.waiting = nil
		l.q.offerFirst(h.queue)
		l.dispatch()
	}
}

// forget ends a run whose message is settled or given back.
func (l *line) forget(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.q.remove(h)
	l.isRoom()
	l.runEnded()
}

// runEnded makes room for another run. The caller holds the lock.
func (l *line) runEnded() {
	l.running--
	signal(l.ended)
	l.dispatch()
}

// empty gives back everything in hand and waits for what runs; false if ctx ends first.
func (l *line) empty(ctx context.Context) bool {
	l.mu.Lock()
	l.known = false
	var leave []*held
	for _, h := range l.q.sorted() {
		if h.leaving = true; !h.running {
			l.q.remove(h)
			leave = append(leave, h)
		}
	}
	l.isRoom()
	l.mu.Unlock()
	for _, h := range leave {
		(&handling{subscription: l.sub, m: h.m, d: h.d}).giveBack()
	}
	for {
		l.mu.Lock()
		running := l.running
		l.mu.Unlock()
		if running == 0 {
			return true
		}
		select {
		case <-l.ended:
		case <-ctx.Done():
			return false
		}
	}
}

// beat tells the server that everything in hand is worked on.
func (l *line) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.q.bySeq {
		if h.m.InProgress() == nil { // without a connection the server notices by itself
			h.alive = time.Now()
		}
	}
}

// standing is what [Subscriber.Standing] says of one subscription.
func (l *line) standing() Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Standing{Elsewhere: l.elsewhere, Held: len(l.q.bySeq)}
	st.Due = !l.elsewhere && (!l.consuming || !l.known || l.gathering != nil) || !l.q.idle()
	st.Full = st.Held >= l.order.Window || l.q.bytes >= l.order.WindowBytes
	return st
}
