package subscribers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// sendEvery is how often a few acks are sent at most: each alone would cost client and server a system call.
	sendEvery = time.Millisecond
	// enoughAcks are sent at once.
	enoughAcks = 64
)

// acks sends acks, several in one go, and asks the server to confirm them if they are to be: the last of those that go
// together stands for all, since a server deals with what comes over one connection in its order.
type acks struct {
	life    context.Context // nobody is answered later than it ends
	nc      *nats.Conn
	confirm bool
	inbox   string

	mu     sync.Mutex
	sub    *nats.Subscription
	last   uint64
	open   map[uint64]*bundle // what is to be confirmed
	unsent []asked
	sent   time.Time // when some were sent last
	due    bool      // the others will be sent
}

// asked is an ack that somebody waits for.
type asked struct {
	reply string // where the ack goes
	by    answerer
}

// bundle is what was sent in one go.
type bundle struct {
	asks       []asked
	reconnects uint64 // of the connection, before the first was sent
	old        bool   // it was there at the last call of expire
}

// An answerer is told what has become of its ack: that the server has confirmed it, or that it is sent if nobody is asked
// to confirm it. It must not block.
type answerer interface{ answered(err error) }

func newAcks(life context.Context, nc *nats.Conn, confirm bool) *acks {
	return &acks{life: life, nc: nc, confirm: confirm, inbox: nc.NewInbox(), open: make(map[uint64]*bundle)}
}

// listen must have succeeded before the first ack that is to be confirmed; it can be called again.
func (a *acks) listen() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil {
		if a.sub, err = a.nc.Subscribe(a.inbox+".*", a.receive); err != nil {
			return fmt.Errorf("subscribe to confirmations: %w", err)
		}
	}
	return nil
}

var errUnconfirmed = errors.New("the server has not confirmed the ack")

// waiting is an answerer that somebody waits for.
type waiting chan error

func (w waiting) answered(err error) { w <- err }

// confirmed acks a message and waits for what becomes of that.
func (a *acks) confirmed(reply string) error {
	w := make(waiting, 1)
	a.ask(reply, w)
	return <-w
}

// ask sends the ack, at once or together with others.
func (a *acks) ask(reply string, by answerer) {
	now := time.Now()
	a.mu.Lock()
	a.unsent = append(a.unsent, asked{reply: reply, by: by})
	wait := a.sent.Add(sendEvery).Sub(now)
	send := len(a.unsent) >= enoughAcks || wait <= 0
	if !send && !a.due {
		a.due = true
		time.AfterFunc(wait, a.send)
	}
	a.mu.Unlock()
	if send {
		a.send()
	}
	if a.life.Err() != nil {
		a.giveUp()
	}
}

// send sends what is not sent yet.
func (a *acks) send() {
	a.mu.Lock()
	asks := a.unsent
	a.unsent, a.due = nil, false
	if len(asks) == 0 {
		a.mu.Unlock()
		return
	}
	a.sent = time.Now()
	if !a.confirm {
		a.mu.Unlock()
		for _, one := range asks {
			one.by.answered(a.nc.Publish(one.reply, ack))
		}
		return
	}
	a.last++
	id := a.last
	a.open[id] = &bundle{asks: asks, reconnects: a.nc.Stats().Reconnects}
	a.mu.Unlock()
	for i, one := range asks {
		var err error
		if i < len(asks)-1 {
			err = a.nc.Publish(one.reply, ack)
		} else {
			err = a.nc.PublishRequest(one.reply, a.inbox+"."+strconv.FormatUint(id, 10), ack)
		}
		if err != nil {
			a.answer(id, err)
			return
		}
	}
}

var ack = []byte("+ACK")

// answer tells those who wait for the acks that were sent under this number, if somebody still does. A confirmation says
// nothing of what was sent over another connection before.
func (a *acks) answer(id uint64, err error) {
	a.mu.Lock()
	b := a.open[id]
	delete(a.open, id)
	a.mu.Unlock()
	if b == nil {
		return
	}
	if err == nil && len(b.asks) > 1 && a.nc.Stats().Reconnects != b.reconnects {
		err = errUnconfirmed
	}
	answerAll(b.asks, err)
}

func answerAll(asks []asked, err error) {
	for _, one := range asks {
		one.by.answered(err)
	}
}

// receive is called for each answer. One without a consumer comes from a server that does not know the consumer any more.
func (a *acks) receive(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[min(len(m.Subject), len(a.inbox)+1):], 10, 64)
	if err != nil {
		return
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		err = nats.ErrNoResponders
	}
	a.answer(id, err)
}

// expire gives up all acks that were waited for already when it was called before: the ack or its answer is lost.
func (a *acks) expire() {
	a.mu.Lock()
	var ended []asked
	for id, b := range a.open {
		if b.old {
			delete(a.open, id)
			ended = append(ended, b.asks...)
		}
		b.old = true
	}
	a.mu.Unlock()
	answerAll(ended, errUnconfirmed)
}

// giveUp answers everybody who still waits when life is over.
func (a *acks) giveUp() {
	a.mu.Lock()
	ended := a.unsent
	a.unsent = nil
	for _, b := range a.open {
		ended = append(ended, b.asks...)
	}
	clear(a.open)
	a.mu.Unlock()
	answerAll(ended, context.Cause(a.life))
}

func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub != nil {
		_ = a.sub.Unsubscribe() // its only error is that the connection is closed
	}
}
