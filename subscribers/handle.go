package subscribers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// errCloseTimeout is the cause of a message context that ended because Close did not wait any longer.
var errCloseTimeout = schema.WithKind(schema.Shutdown, errors.New("the subscriber is closed and waits no longer"))

// handling is one message between its arrival and its settlement.
type handling struct {
	*subscription
	m *nats.Msg
	d *Delivery

	mu       sync.Mutex
	alive    time.Time // when the server last heard that it is being worked on
	settling bool      // it hears no more of that
}

// work handles m, and then one message after the other until the subscription ends.
func (s *subscription) work(m *nats.Msg) {
	for ok := true; ok; m, ok = <-s.idle {
		s.handle(m)
		s.slots.give(1)
		s.open.Done()
		s.wg.Done()
	}
}

// handle hands m out, keeps it from being handed to somebody else and settles it as its receiver says.
func (s *subscription) handle(m *nats.Msg) {
	d, err := newDelivery(m)
	if err != nil {
		s.senders.Done()
		s.log.Error("a message without delivery data was ignored", "error", schema.OneLine(err.Error()))
		return
	}
	h := &handling{subscription: s, m: m, d: d, alive: time.Now()}
	s.inHand.add(h)
	defer s.inHand.remove(h)
	ctx, cancel := context.WithCancelCause(context.WithValue(s.base, deliveryKey{}, d))
	defer cancel(nil)
	msg := d.message()
	msg.SetContext(ctx)

	handedOut := h.handOut(msg)
	s.senders.Done()
	if !handedOut {
		h.giveBack()
		return
	}
	abandon, over := s.abandon, (<-chan struct{})(nil)
	for {
		select {
		case <-msg.Acked():
			h.ack()
			return
		case <-msg.Nacked():
			h.nak(time.Duration(d.retryIn.Load()))
			return
		case <-abandon:
			cancel(errCloseTimeout)
			abandon, over = nil, s.life.Done()
		case <-over:
			s.unfinished.Add(1)
			return
		}
	}
}

// handOut passes msg on; false if the subscription ended first.
func (h *handling) handOut(msg *message.Message) bool {
	if h.ctx.Err() != nil {
		return false
	}
	select {
	case h.out <- msg:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// inProgress tells the server that the message is being worked on, unless it is about to hear its outcome or somebody
// else may have the message by now.
func (h *handling) inProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settling || time.Since(h.alive) > h.cfg.AckWait {
		return
	}
	if err := h.m.InProgress(); err != nil {
		h.log.Debug("could not report progress", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
		return
	}
	h.alive = time.Now()
}

// ack settles the message as done. When the server has not heard of it for the whole ack wait, somebody else may have
// it, and this run has no say any more.
func (h *handling) ack() {
	killpoint.At(killpoint.BeforeAck)
	err := h.settle(func() error {
		if h.cfg.DoubleAck {
			return h.acks.confirmed(h.life, h.m)
		}
		return h.m.Ack()
	})
	killpoint.At(killpoint.AfterAck)
	if err != nil {
		h.log.Warn("message not acked, it will come again", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
}

func (h *handling) nak(wait time.Duration) {
	err := h.settle(func() error {
		if wait > 0 {
			return h.m.NakWithDelay(wait)
		}
		return h.m.Nak()
	})
	if err != nil {
		h.log.Warn("message not nacked, it will come again after its ack wait", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
}

// giveBack returns a message that was not handed out. Without a connection the server notices by itself.
func (h *handling) giveBack() {
	h.mu.Lock()
	h.settling = true
	h.mu.Unlock()
	if err := h.m.Nak(); err != nil {
		h.log.Debug("message not given back, it will come again after its ack wait", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
}

var errTooLate = errors.New("its ack wait has passed")

// settle tells the server the outcome and tries again while the message is still this run's, since a connection that
// is away for a moment is no reason to do the work twice.
func (h *handling) settle(tell func() error) (err error) {
	h.mu.Lock()
	h.settling = true
	until := h.alive.Add(h.cfg.AckWait)
	h.mu.Unlock()
	for {
		switch {
		case h.life.Err() != nil:
			return errors.Join(context.Cause(h.life), err)
		case !time.Now().Before(until):
			return errors.Join(errTooLate, err)
		}
		if err = tell(); err == nil || errors.Is(err, nats.ErrMsgAlreadyAckd) {
			return nil
		}
		select {
		case <-time.After(firstPause):
		case <-h.life.Done():
		}
	}
}
