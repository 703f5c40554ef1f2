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

// acks sends acks, and asks the server to confirm them if they are to be. All answers come to one inbox, so that many can
// be on their way at once for little more than the ack itself costs.
type acks struct {
	life    context.Context // nobody is answered later than it ends
	nc      *nats.Conn
	confirm bool
	inbox   string

	mu     sync.Mutex
	sub    *nats.Subscription
	last   uint64
	open   map[uint64]*asked
	unsent []*asked
	sent   time.Time // when some were sent last
	due    bool      // the others will be sent
}

// asked is an ack that somebody waits for.
type asked struct {
	id    uint64
	reply string // where the ack goes
	by    answerer
	old   bool // it was there at the last call of expire
}

// An answerer is told what has become of its ack: that the server has confirmed it, or that it is sent if nobody is asked
// to confirm it. It must not block.
type answerer interface{ answered(err error) }

func newAcks(life context.Context, nc *nats.Conn, confirm bool) *acks {
	return &acks{life: life, nc: nc, confirm: confirm, inbox: nc.NewInbox(), open: make(map[uint64]*asked)}
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
	a.last++
	one := &asked{id: a.last, reply: reply, by: by}
	a.open[one.id] = one
	a.unsent = append(a.unsent, one)
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
	if len(asks) > 0 {
		a.sent = time.Now()
	}
	a.mu.Unlock()
	for _, one := range asks {
		if !a.confirm {
			err := a.nc.Publish(one.reply, ack)
			a.answer(one.id, err)
		} else if err := a.nc.PublishRequest(one.reply, a.inbox+"."+strconv.FormatUint(one.id, 10), ack); err != nil {
			a.answer(one.id, err)
		}
	}
}

var ack = []byte("+ACK")

// answer tells who waits for the ack with this number, if somebody still does.
func (a *acks) answer(id uint64, err error) {
	a.mu.Lock()
	one := a.open[id]
	delete(a.open, id)
	a.mu.Unlock()
	if one != nil {
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
	a.end(errUnconfirmed, func(one *asked) bool {
		was := one.old
		one.old = true
		return was
	})
}

// giveUp answers everybody who still waits when life is over.
func (a *acks) giveUp() { a.end(context.Cause(a.life), func(*asked) bool { return true }) }

func (a *acks) end(err error, which func(*asked) bool) {
	a.mu.Lock()
	var ended []*asked
	for id, one := range a.open {
		if which(one) {
			delete(a.open, id)
			ended = append(ended, one)
		}
	}
	a.mu.Unlock()
	for _, one := range ended {
		one.by.answered(err)
	}
}

func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub != nil {
		_ = a.sub.Unsubscribe() // its only error is that the connection is closed
	}
}
