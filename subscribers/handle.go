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
	m      *nats.Msg
	d      *Delivery
	cancel context.CancelCauseFunc // ends the message's context
	ended  chan struct{}           // of an ordered one: closed when it is acked

	mu       sync.Mutex
	alive    time.Time // when the server last heard that it is being worked on
	settling bool      // it hears no more of that
}

// work handles one message after the other until the subscription ends.
func (s *subscription) work() {
	for h := range s.ready {
		h.handle()
	}
}

// handle hands the message out, keeps it from being handed to somebody else and settles it as its receiver says.
func (h *handling) handle() {
	msg := h.d.message(h.cfg.Bare)
	var ctx context.Context
	ctx, h.cancel = context.WithCancelCause(context.WithValue(h.base, deliveryKey{}, h.d))
	msg.SetContext(ctx)

	if !h.handOut(msg) {
		h.refuse()
		return
	}
	h.senders.Done()
	abandon, end := h.abandon, (<-chan struct{})(nil)
	for {
		select {
		case <-msg.Acked():
			h.ack()
			return
		case <-msg.Nacked():
			h.nak(time.Duration(h.d.retryIn.Load()))
			h.over()
			return
		case <-abandon:
			h.cancel(errCloseTimeout)
			abandon, end = nil, h.life.Done()
		case <-end:
			h.unfinished.Add(1)
			h.over()
			return
		}
	}
}

// refuse gives a message back that nobody was handed.
func (h *handling) refuse() {
	h.senders.Done()
	h.giveBack()
	h.over()
}

// over ends the life of the message here.
func (h *handling) over() {
	if h.ended != nil {
		close(h.ended)
		return
	}
	if h.cancel != nil {
		h.cancel(nil)
	}
	h.inHand.remove(h)
	h.slots.give()
	h.open.Done()
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

// ack settles the message as done, and its life here is over when the server has heard of it. When the server has not
// heard of it for the whole ack wait, somebody else may have it, and this run has no say any more.
func (h *handling) ack() {
	killpoint.At(killpoint.BeforeAck)
	if h.mayTell(h.settles()) != nil {
		h.insist()
		return
	}
	h.acks.ask(h.m.Reply, h)
}

// answered is told what has become of the ack.
func (h *handling) answered(err error) {
	killpoint.At(killpoint.AfterAck)
	if err == nil {
		h.over()
		return
	}
	go func() {
		h.wait()
		h.insist()
	}()
}

// insist acks until the server has heard of it or it is too late.
func (h *handling) insist() {
	if err := h.settle(func() error { return h.acks.confirmed(h.m.Reply) }); err != nil {
		h.log.Warn("message not acked, it will come again", "sequence", h.d.Sequence, "error", schema.OneLine(err.Error()))
	}
	h.over()
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

// settles says that the outcome is about to be told, and until when it counts.
func (h *handling) settles() (until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settling = true
	return h.alive.Add(h.cfg.AckWait)
}

func (h *handling) mayTell(until time.Time) error {
	switch {
	case h.life.Err() != nil:
		return context.Cause(h.life)
	case !time.Now().Before(until):
		return errTooLate
	}
	return nil
}

// settle tells the server the outcome and tries again while the message is still this run's, since a connection that
// is away for a moment is no reason to do the work twice.
func (h *handling) settle(tell func() error) (err error) {
	for until := h.settles(); ; h.wait() {
		if late := h.mayTell(until); late != nil {
			return errors.Join(late, err)
		}
		if err = tell(); err == nil || errors.Is(err, nats.ErrMsgAlreadyAckd) {
			return nil
		}
	}
}

func (h *handling) wait() {
	select {
	case <-time.After(firstPause):
	case <-h.life.Done():
	}
}
