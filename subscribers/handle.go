package subscribers

import (
	"context"
	"errors"
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
	m     *nats.Msg
	d     *Delivery
	alive time.Time // when the server last heard that it is being worked on
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
	ctx, cancel := context.WithCancelCause(context.WithValue(s.base, deliveryKey{}, d))
	defer cancel(nil)
	msg := d.message()
	msg.SetContext(ctx)
	beat := time.NewTicker(s.cfg.AckWait / 3)
	defer beat.Stop()

	handedOut := h.handOut(msg, beat.C)
	s.senders.Done()
	if !handedOut {
		h.giveBack()
		return
	}
	abandon := s.abandon
	for {
		select {
		case <-msg.Acked():
			h.ack()
			return
		case <-msg.Nacked():
			h.nak(time.Duration(d.retryIn.Load()))
			return
		case <-beat.C:
			h.inProgress()
		case <-abandon:
			cancel(errCloseTimeout)
			abandon = nil
		case <-s.life.Done():
			s.unfinished.Add(1)
			return
		}
	}
}

// handOut passes msg on; false if the subscription ended first.
func (h *handling) handOut(msg *message.Message, beat <-chan time.Time) bool {
	for h.ctx.Err() == nil {
		select {
		case h.out <- msg:
			return true
		case <-beat:
			h.inProgress()
		case <-h.ctx.Done():
		}
	}
	return false
}

func (h *handling) inProgress() {
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
	err := h.settle(func(ctx context.Context) error {
		if h.cfg.DoubleAck {
			return h.m.AckSync(nats.Context(ctx))
		}
		return h.m.Ack()
	})
	killpoint.At(killpoint.AfterAck)
	if err != nil {
		h.log.Warn("message not acked, it will come again", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
}

func (h *handling) nak(wait time.Duration) {
	err := h.settle(func(context.Context) error {
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
	if err := h.m.Nak(); err != nil {
		h.log.Debug("message not given back, it will come again after its ack wait", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
}

var errTooLate = errors.New("its ack wait has passed")

// settle tells the server the outcome and tries again while the message is still this run's, since a connection that
// is away for a moment is no reason to do the work twice.
func (h *handling) settle(tell func(context.Context) error) error {
	ctx, cancel := context.WithDeadlineCause(h.life, h.alive.Add(h.cfg.AckWait), errTooLate)
	defer cancel()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := tell(ctx)
		if err == nil || errors.Is(err, nats.ErrMsgAlreadyAckd) {
			return nil
		}
		again := time.NewTimer(firstPause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
