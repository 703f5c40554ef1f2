package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// scanPatience is how long a scan waits for a message before it asks whether there is one.
const scanPatience = 5 * time.Second

// scan calls f for each message of a stream that the filter matches, without its body, oldest first. It ends early,
// without an error, when f returns false. A work queue cannot be scanned this way.
func (s *Service) scan(ctx context.Context, stream, filter string, f func(m natsjs.Msg) bool) error {
	consumer, err := s.js.OrderedConsumer(ctx, stream, natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: natsjs.DeliverAllPolicy, HeadersOnly: true,
		InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("scan %s: %w", stream, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("scan %s: %w", stream, err)
	}
	if info.NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages(natsjs.PullMaxMessages(5000))
	if err != nil {
		return fmt.Errorf("scan %s: %w", stream, err)
	}
	defer messages.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, scanPatience)
		m, err := messages.Next(natsjs.NextContext(wait))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// What was left may have expired meanwhile.
			if info, err := consumer.Info(ctx); err != nil || info.NumPending == 0 {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("scan %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("scan %s: %w", stream, err)
		}
		if !f(m) || meta.NumPending == 0 {
			return nil
		}
	}
}

// walk calls f for each message of the work queue that the filter matches, one request a message, oldest first, until f
// returns false.
func (s *Service) walk(ctx context.Context, stream, filter string, f func(m *natsjs.RawStreamMsg) bool) error {
	handle, err := s.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	for seq := max(handle.CachedInfo().State.FirstSeq, 1); ; {
		m, err := handle.GetMsg(ctx, seq, natsjs.WithGetMsgSubject(filter))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s at %d: %w", stream, seq, err)
		}
		if !f(m) {
			return nil
		}
		seq = m.Sequence + 1
	}
}

// letter is what a scan knows of a dead letter.
type letter struct {
	stream    schema.Stream
	handler   string
	id        string
	message   string   // id of the message
	key       [32]byte // zero if no inbox row stands for it
	replay    int
	cause     schema.Cause
	tombstone string
	source    string // outbox it came from; empty for marks and messages of others
	at        time.Time
}

// scanDead calls f for each dead letter and each mark of a dead letter.
func (s *Service) scanDead(ctx context.Context, f func(letter)) error {
	subjects := s.cfg.Subjects
	return s.scan(ctx, subjects.DeadStreamName(), subjects.Full("dead.>"), func(m natsjs.Msg) bool {
		relative, _ := subjects.Relative(m.Subject())
		d, err := schema.DecodeDeadLetter(relative, withoutBody(m.Headers()), nil)
		if err == nil {
			l := letter{
				stream: d.Stream, handler: d.Handler, id: d.ID, message: d.MessageID(), key: d.Key, replay: d.Replay,
				cause: d.Cause, tombstone: d.Tombstone, source: nats.Header(d.Header).Get(schema.HeaderSource),
			}
			if meta, err := m.Metadata(); err == nil {
				l.at = meta.Timestamp
			}
			f(l)
		}
		return true
	})
}

// withoutBody drops the header that says how much of the body is headers: a scan has no body.
func withoutBody(h nats.Header) map[string][]string {
	out := make(map[string][]string, len(h))
	for k, vs := range h {
		if k != "mb-dead-block" {
			out[k] = vs
		}
	}
	return out
}
