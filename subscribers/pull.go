package subscribers

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// pullExpiry is the length of one pull request in heartbeats.
const pullExpiry = 6

// puller asks a consumer for messages, and for the next ones before those have come. The client's own ways to consume
// either ask for more than there is room for or lose what is on its way when they stop; an exact count needs the bare
// protocol, which is part of JetStream's public API
// (https://docs.nats.io/reference/reference-protocols/nats_api_reference).
type puller struct {
	nc        *nats.Conn
	sub       *nats.Subscription
	msgs      chan *nats.Msg
	lost      chan nats.Status
	requests  string // their subject
	inbox     string
	heartbeat time.Duration

	last  int       // number of the last request; part of its reply subject
	open  []request // the oldest first
	asked int       // what is still to come of all of them
}

// request is one that the server has not answered in full. Messages do not say which one they answer; they are counted
// for the oldest, which is right in sum.
type request struct {
	reply string
	left  int
	until time.Time // by then the server has said that it is over, if it knows of it
}

func newPuller(js jetstream.JetStream, stream, durable string, heartbeat time.Duration, buffer int) (*puller, error) {
	nc := js.Conn()
	p := &puller{
		nc: nc, msgs: make(chan *nats.Msg, buffer), inbox: nc.NewInbox(), heartbeat: heartbeat,
		requests: apiPrefix(js.Options()) + "CONSUMER.MSG.NEXT." + stream + "." + durable,
	}
	var err error
	if p.sub, err = nc.ChanSubscribe(p.inbox+".*", p.msgs); err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	p.lost = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return p, nil
}

func apiPrefix(o jetstream.JetStreamOptions) string {
	switch {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	}
	return jetstream.DefaultAPIPrefix
}

// room is what messages are asked for.
type room interface {
	// want returns how many messages to ask for while so many are asked for already, and how many bytes they may have,
	// unless that is 0. With a wait it is to be called again then; in any case it is when more signals.
	want(asked int) (n, bytes int, wait time.Duration)
	more() <-chan struct{}
	// receive takes a message, of which want knows from then on.
	receive(m *nats.Msg)
}

// run asks for messages and passes on what comes until ctx ends or something is wrong. Then the puller must be closed.
func (p *puller) run(ctx context.Context, r room) error {
	silence, later := time.NewTimer(2*p.heartbeat), time.NewTimer(time.Hour)
	defer silence.Stop()
	defer later.Stop()
	heard := time.Now()
	for {
		n, bytes, wait := r.want(p.asked)
		if n > 0 {
			if p.asked == 0 {
				heard = time.Now()
			}
			if err := p.ask(n, bytes); err != nil {
				return err
			}
		}
		var due <-chan time.Time
		if wait > 0 {
			later.Reset(wait)
			due = later.C
		}
		select {
		case m := <-p.msgs:
			if err := p.arrived(m, r); err != nil {
				return err
			}
			if err := p.drain(r); err != nil {
				return err
			}
			heard = time.Now()
		case <-r.more():
		case <-due:
		case <-silence.C:
			left := 2 * p.heartbeat
			if p.asked > 0 {
				if left = time.Until(heard.Add(2 * p.heartbeat)); left <= 0 {
					return errSilent
				}
			}
			silence.Reset(left)
			p.forget(time.Now())
		case <-p.lost:
			return errDisconnected
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain passes on what is here already, until it is time to ask for more.
func (p *puller) drain(r room) error {
	for range cap(p.msgs) / 8 {
		select {
		case m := <-p.msgs:
			if err := p.arrived(m, r); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

func (p *puller) ask(n, bytes int) error {
	expires := pullExpiry * p.heartbeat
	body, err := json.Marshal(pullRequest{Batch: n, MaxBytes: bytes, Expires: expires, Heartbeat: p.heartbeat})
	if err != nil {
		return fmt.Errorf("encode pull request: %w", err)
	}
	p.last++
	reply := p.inbox + "." + strconv.Itoa(p.last)
	if err := p.nc.PublishRequest(p.requests, reply, body); err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.open = append(p.open, request{reply: reply, left: n, until: time.Now().Add(expires + 2*p.heartbeat)})
	p.asked += n
	return nil
}

// arrived deals with what the server has sent.
func (p *puller) arrived(m *nats.Msg, r room) error {
	if isDelivery(m) {
		p.settle(0, 1)
		r.receive(m)
		return nil
	}
	for i := range p.open {
		if p.open[i].reply == m.Subject {
			over, err := status(m)
			if over && err == nil {
				p.settle(i, pending(m, p.open[i].left))
			}
			return err
		}
	}
	// Its messages were counted for it, and those of others are still to come.
	over, err := status(m)
	if over && err == nil {
		p.settle(0, pending(m, 0))
	}
	return err
}

// settle counts n messages as no longer to come: of the request with this index and, where it has fewer, of the oldest.
func (p *puller) settle(i, n int) {
	for ; n > 0 && len(p.open) > 0; i = 0 {
		k := min(n, p.open[i].left)
		p.open[i].left -= k
		p.asked -= k
		n -= k
		if p.open[i].left == 0 {
			p.open = append(p.open[:i], p.open[i+1:]...)
		}
	}
}

// forget gives up requests that the server should have ended by now. It may never have had them.
func (p *puller) forget(now time.Time) {
	for len(p.open) > 0 && now.After(p.open[0].until) {
		p.settle(0, p.open[0].left)
	}
}

// isDelivery tells messages from the server's words about the request, which nobody is to answer. Headers cannot: a
// foreign message may carry any of them.
func isDelivery(m *nats.Msg) bool { return m.Reply != "" }

// pending returns how many messages of a request that is over will not come; all that are left if the server says nothing.
func pending(m *nats.Msg, left int) int {
	n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil {
		return left
	}
	return n
}

// status reads what the server says about a request: that it still waits, that it is over, or what is wrong.
func status(m *nats.Msg) (over bool, err error) {
	code, text := m.Header.Get("Status"), m.Header.Get("Description")
	switch code {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // no messages, expired
		return true, nil
	case "409":
		if low := strings.ToLower(text); strings.Contains(low, "batch completed") || strings.Contains(low, "exceeds maxbytes") {
			return true, nil
		}
	case "503":
		text = "no such consumer"
	}
	return true, fmt.Errorf("the server ended the request: %s %s", schema.OneLine(code), schema.OneLine(text))
}

// close tells the server that nobody listens any more, then passes on everything it had sent before it knew.
func (p *puller) close(receive func(*nats.Msg)) {
	p.nc.RemoveStatusListener(p.lost)
	if p.nc.IsConnected() {
		closed := p.sub.StatusChanged(nats.SubscriptionClosed)
		if p.sub.Drain() == nil {
			limit := time.NewTimer(2 * time.Second)
			defer limit.Stop()
		drain:
			for {
				select {
				case m := <-p.msgs:
					deliver(m, receive)
				case <-closed:
					break drain
				case <-limit.C:
					break drain
				}
			}
		}
	}
	_ = p.sub.Unsubscribe() // its only error is that the connection is closed
	for {
		select {
		case m := <-p.msgs:
			deliver(m, receive)
		default:
			return
		}
	}
}

func deliver(m *nats.Msg, receive func(*nats.Msg)) {
	if isDelivery(m) {
		receive(m)
	}
}
