package proof

import (
	"context"
	"errors"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A place is where a message is stored.
type place struct {
	id  string
	seq uint64
}

// storedEvents scans the stream of events.
func storedEvents(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) ([]place, error) {
	var all []place
	err := scan(ctx, js, subjects.StreamName(schema.Events), func(m natsjs.Msg, seq uint64) error {
		if strings.HasPrefix(m.Subject(), subjects.Full("events.")) {
			all = append(all, place{id: m.Headers().Get("_watermill_message_uuid"), seq: seq})
		}
		return nil
	})
	return all, err
}

// storedJobs returns the jobs that are in their stream.
func storedJobs(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) ([]place, error) {
	stream, err := js.Stream(ctx, subjects.StreamName(schema.Jobs))
	if err != nil {
		return nil, wrap("find the stream of jobs", err)
	}
	var all []place
	for seq := max(stream.CachedInfo().State.FirstSeq, 1); ; {
		m, err := stream.GetMsg(ctx, seq, natsjs.WithGetMsgSubject(subjects.Full("jobs.>")))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, wrap("read the stream of jobs", err)
		}
		all = append(all, place{m.Header.Get("_watermill_message_uuid"), m.Sequence})
		seq = m.Sequence + 1
	}
}

// scan calls f for each message of a stream that is no work queue, without its body.
func scan(ctx context.Context, js natsjs.JetStream, name string, f func(m natsjs.Msg, seq uint64) error) error {
	consumer, err := js.OrderedConsumer(ctx, name, natsjs.OrderedConsumerConfig{
		DeliverPolicy: natsjs.DeliverAllPolicy, HeadersOnly: true, InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		return wrap("scan "+name, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return wrap("scan "+name, err)
	}
	if info.NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages(natsjs.PullMaxMessages(5000))
	if err != nil {
		return wrap("scan "+name, err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(natsjs.NextContext(ctx))
		if err != nil {
			return wrap("scan "+name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return wrap("scan "+name, err)
		}
		if err := f(m, meta.Sequence.Stream); err != nil {
			return wrap("scan "+name, err)
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}
