package subscribers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// A Delivery is one hand-out of a message as the broker made it. Header and Payload are what arrived, whatever the
// Watermill message could express of it; treat them as read-only.
type Delivery struct {
	Stream    string
	Consumer  string
	Subject   string
	Sequence  uint64 // in the stream
	Delivered uint64 // 1 for the first hand-out, then counting
	Stored    time.Time
	Header    nats.Header
	Payload   []byte

	number  uint64 // of all hand-outs of the consumer
	retryIn atomic.Int64
}

type deliveryKey struct{}

// DeliveryFrom returns the delivery of the message whose context this is.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// WithDelivery returns ctx for a message that was handed out as d, for tests of what receives messages.
func WithDelivery(ctx context.Context, d *Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// RetryIn makes the message come back after wait when it is nacked. Without it, or with a wait of 0, it comes back at
// once. It has no effect on a message that is settled.
func (d *Delivery) RetryIn(wait time.Duration) { d.retryIn.Store(int64(max(wait, 0))) }

// newDelivery reads what the server says about m. It fails if m was not sent by a JetStream consumer.
func newDelivery(m *nats.Msg) (*Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &Delivery{
		Stream: meta.Stream, Consumer: meta.Consumer, Subject: m.Subject,
		Sequence: meta.Sequence.Stream, Delivered: meta.NumDelivered, Stored: meta.Timestamp,
		Header: m.Header, Payload: m.Data, number: meta.Sequence.Consumer,
	}, nil
}

// again is the delivery of a message that was handed out here several times since it arrived as d.
func (d *Delivery) again(times uint64) *Delivery {
	return &Delivery{
		Stream: d.Stream, Consumer: d.Consumer, Subject: d.Subject, Sequence: d.Sequence, Delivered: d.Delivered + times,
		Stored: d.Stored, Header: d.Header, Payload: d.Payload, number: d.number,
	}
}

// message renders the delivery as a Watermill message, as far as that can express it; a bare one has no metadata.
func (d *Delivery) message(bare bool) *message.Message {
	if bare {
		id := ""
		if ids := d.Header[schema.HeaderID]; len(ids) > 0 {
			id = ids[0]
		}
		return message.NewMessage(id, d.Payload)
	}
	id, metadata := schema.WatermillHeader(d.Header)
	msg := message.NewMessage(id, d.Payload)
	msg.Metadata = metadata
	return msg
}
