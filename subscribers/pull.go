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

// puller asks a consumer for messages, one request at a time. The client's own ways to consume either ask for more
// than there is room for or lose what is on its way when they stop; an exact count needs the bare protocol, which is
// part of JetStream's public API (https://docs.nats.io/reference/reference-protocols/nats_api_reference).
type puller struct {
	nc        *nats.Conn
	sub       *nats.Subscription
	msgs      chan *nats.Msg
	lost      chan nats.Status
	requests  string // their subject
	inbox     string
	request   int // number of the current one; part of its reply subject
	heartbeat time.Duration
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

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// pull asks for n messages, and for no more than so many bytes unless that is 0, and passes on what comes until the
// request is used up or expired. It returns how many came. After an error the puller must be closed.
func (p *puller) pull(ctx context.Context, n, bytes int, receive func(*nats.Msg)) (got int, err error) {
	body, err := json.Marshal(pullRequest{Batch: n, MaxBytes: bytes, Expires: pullExpiry * p.heartbeat, Heartbeat: p.heartbeat})
	if err != nil {
		return 0, fmt.Errorf("encode pull request: %w", err)
	}
	p.request++
	reply := p.inbox + "." + strconv.Itoa(p.request)
	if err := p.nc.PublishRequest(p.requests, reply, body); err != nil {
		return 0, fmt.Errorf("ask for messages: %w", err)
	}
	silence := time.NewTimer(2 * p.heartbeat)
	defer silence.Stop()
	for got < n {
		m, err := p.next(ctx, silence)
		if err != nil {
			return got, err
		}
		if isDelivery(m) {
			receive(m)
			got++
		} else if m.Subject == reply {
			if over, err := status(m); over || err != nil {
				return got, err
			}
		}
	}
	return got, nil
}

// next returns what the server has sent, or waits for that until silence, which begins then.
func (p *puller) next(ctx context.Context, silence *time.Timer) (*nats.Msg, error) {
	select {
	case m := <-p.msgs:
		return m, nil
	default:
	}
	silence.Reset(2 * p.heartbeat)
	select {
	case m := <-p.msgs:
		return m, nil
	case <-silence.C:
		return nil, errSilent
	case <-p.lost:
		return nil, errDisconnected
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isDelivery tells messages from the server's words about the request, which nobody is to answer. Headers cannot: a
// foreign message may carry any of them.
func isDelivery(m *nats.Msg) bool { return m.Reply != "" }

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
func (p *puller) close(receive func(*nats.Msg)) (got int) {
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
					got += deliver(m, receive)
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
			got += deliver(m, receive)
		default:
			return got
		}
	}
}

func deliver(m *nats.Msg, receive func(*nats.Msg)) int {
	if !isDelivery(m) {
		return 0
	}
	receive(m)
	return 1
}
