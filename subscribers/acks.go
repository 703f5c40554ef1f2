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

// sendEvery is how often a few acks are sent at most: each alone would cost client and server a system call.
const sendEvery = 500 * time.Microsecond

// acks asks the server to confirm acks. All answers come to one inbox, so that many can be on their way at once for
// little more than the ack itself costs.
type acks struct {
	nc    *nats.Conn
	inbox string
	few   int // fewer than this are sent no more often than sendEvery

	mu     sync.Mutex
	sub    *nats.Subscription
	last   uint64
	open   map[uint64]*asked
	unsent []uint64
	sent   time.Time // when some were sent last
	due    bool      // the others will be sent
}

// asked is an ack that the server is asked to confirm.
type asked struct {
	reply  string // where the ack goes
	answer chan error
	old    bool // it was there at the last call of expire
}

func newAcks(nc *nats.Conn, few int) *acks {
	return &acks{nc: nc, inbox: nc.NewInbox(), few: few, open: make(map[uint64]*asked)}
}

// listen must have succeeded before the first ack; it can be called again.
func (a *acks) listen() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil {
		if a.sub, err = a.nc.Subscribe(a.inbox+".*", a.answered); err != nil {
			return fmt.Errorf("subscribe to confirmations: %w", err)
		}
	}
	return nil
}

var errUnconfirmed = errors.New("the server has not confirmed the ack")

// confirmed acks m and waits until the server has confirmed that, or does not seem to.
func (a *acks) confirmed(ctx context.Context, m *nats.Msg) error {
	one := &asked{reply: m.Reply, answer: make(chan error, 1)}
	id := a.ask(one)
	select {
	case err := <-one.answer:
		return err
	case <-ctx.Done():
		a.take(id)
		return context.Cause(ctx)
	}
}

// ask sends the ack, at once or together with others.
func (a *acks) ask(one *asked) (id uint64) {
	now := time.Now()
	a.mu.Lock()
	a.last++
	id = a.last
	a.open[id] = one
	a.unsent = append(a.unsent, id)
	wait := a.sent.Add(sendEvery).Sub(now)
	send := len(a.unsent) >= a.few || wait <= 0
	if !send && !a.due {
		a.due = true
		time.AfterFunc(wait, a.send)
	}
	a.mu.Unlock()
	if send {
		a.send()
	}
	return id
}

// send sends what is not sent yet.
func (a *acks) send() {
	a.mu.Lock()
	ids := a.unsent
	a.unsent, a.due = nil, false
	if len(ids) > 0 {
		a.sent = time.Now()
	}
	asks := make([]*asked, len(ids))
	for i, id := range ids {
		asks[i] = a.open[id]
	}
	a.mu.Unlock()
	for i, one := range asks {
		if one == nil { // nobody waits for it any more
			continue
		}
		if err := a.nc.PublishRequest(one.reply, a.inbox+"."+strconv.FormatUint(ids[i], 10), []byte("+ACK")); err != nil && a.take(ids[i]) != nil {
			one.answer <- err
		}
	}
}

// take returns the ack with this number if it is still waited for.
func (a *acks) take(id uint64) *asked {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.open[id]
	delete(a.open, id)
	return one
}

// answered is called for each answer. One without a consumer comes from a server that does not know the consumer any more.
func (a *acks) answered(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[min(len(m.Subject), len(a.inbox)+1):], 10, 64)
	if err != nil {
		return
	}
	if one := a.take(id); one != nil {
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			err = nats.ErrNoResponders
		}
		one.answer <- err
	}
}

// expire gives up all acks that were waited for already when it was called before: the ack or its answer is lost.
func (a *acks) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, one := range a.open {
		if one.old {
			delete(a.open, id)
			one.answer <- errUnconfirmed
		}
		one.old = true
	}
}

func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub != nil {
		_ = a.sub.Unsubscribe() // its only error is that the connection is closed
	}
}
