package proof

import (
	"context"
	"errors"
	"fmt"
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

// storedJobs returns the jobs that are in their stream. A replay has the id of the job that it replays.
func storedJobs(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) ([]place, error) {
	stream, err := js.Stream(ctx, subjects.StreamName(schema.Jobs))
	if err != nil {
		return nil, wrap("find the stream of jobs", err)
	}
	var all []place
	for seq := max(stream.CachedInfo().State.FirstSeq, 1); ; seq++ {
		// Of all subjects: the server walks over a filter's gaps message by message.
		m, err := stream.GetMsg(ctx, seq, natsjs.WithGetMsgSubject(">"))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, wrap("read the stream of jobs", err)
		}
		seq = m.Sequence
		if !strings.HasPrefix(m.Subject, subjects.Full("jobs.")) && !strings.HasPrefix(m.Subject, subjects.Full("replay.")) {
			continue
		}
		id := m.Header.Get("_watermill_message_uuid")
		if of := m.Header.Get("mb-replay-of"); of != "" {
			id = of
		}
		all = append(all, place{id, m.Sequence})
	}
}

// A Letter is what the stream of dead letters says about a message.
type Letter struct {
	ID       string // of the message that was published first
	Handler  string // that gave it up
	Replay   string // number
	Subject  string // that it had
	Cause    string
	Attempts string
	Open     bool // it was neither replayed nor dropped
}

// Letters scans the stream of dead letters.
func Letters(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) ([]Letter, error) {
	var all []Letter
	err := scan(ctx, js, subjects.DeadStreamName(), func(m natsjs.Msg, _ uint64) error {
		parts, h := strings.Split(m.Subject(), "."), m.Headers()
		if len(parts) != 6 {
			return fmt.Errorf("a letter has the subject %q", m.Subject())
		}
		all = append(all, Letter{
			ID: parts[4], Handler: parts[3], Replay: parts[5], Subject: h.Get("mb-dead-subject"), Cause: h.Get("mb-dead-cause"),
			Attempts: h.Get("mb-dead-attempts"), Open: h.Get("mb-dead-tombstone") == "",
		})
		return nil
	})
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return nil, nil
	}
	return all, err
}

// SentJobs returns how many messages the cursors say that the stream of jobs was given, those included that are handled.
func SentJobs(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) (int64, error) {
	stream, err := js.Stream(ctx, subjects.StreamName(schema.Jobs))
	if err != nil {
		return 0, wrap("find the stream of jobs", err)
	}
	info, err := stream.Info(ctx, natsjs.WithSubjectFilter(subjects.Full("cursor.jobs.>")))
	if err != nil {
		return 0, wrap("list the cursors", err)
	}
	var sum int64
	for subject := range info.State.Subjects {
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return 0, wrap("read a cursor", err)
		}
		cursor, err := schema.DecodeCursor(m.Data)
		if err != nil {
			return 0, wrap("read a cursor", err)
		}
		sum += cursor.Total
	}
	return sum, nil
}

// patience is how long a scan waits for a message before it asks whether there is one.
const patience = 5 * time.Second

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
	for anew := 0; ; {
		wait, cancel := context.WithTimeout(ctx, patience)
		m, err := messages.Next(natsjs.NextContext(wait))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// What was left may have expired meanwhile. A consumer that is gone, with the server that had it, is made anew.
			info, err := consumer.Info(ctx)
			if errors.Is(err, natsjs.ErrConsumerNotFound) && anew < 12 {
				anew++
				continue
			}
			if err != nil {
				return wrap("scan "+name, err)
			}
			if info.NumPending == 0 {
				return nil
			}
			continue
		}
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
