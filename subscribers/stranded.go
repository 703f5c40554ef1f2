package subscribers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// settleTime is what the server gets from an ack to the removal of the message; heartbeats that are shorter give less.
const settleTime = 2 * time.Second

// rescue makes the consumer of a work queue anew if the stream has a message that the consumer takes for acked and never
// hands out again. A server that is killed may come back so: the ack is on its disk, and the removal is not. A handler
// that keeps a record knows by the message's key that it is handled, and acks it.
func (s *subscription) rescue(ctx context.Context, stream jetstream.Stream, have *jetstream.ConsumerInfo) error {
	seq, err := stranded(ctx, stream, have, min(settleTime, s.cfg.Heartbeat))
	if seq == 0 || err != nil {
		return err
	}
	switch now, err := stream.Consumer(ctx, s.spec.Durable); {
	case errors.Is(err, jetstream.ErrConsumerNotFound): // another process is about to make it
	case err != nil:
		return fmt.Errorf("look up consumer %s of stream %s: %w", s.spec.Durable, s.cfg.Stream, err)
	case !now.CachedInfo().Created.Equal(have.Created): // another process has made it
		return nil
	}
	s.log.WarnContext(ctx, "the stream has an acked message, the consumer is made anew", "sequence", seq, "acked", have.AckFloor.Stream)
	if err := stream.DeleteConsumer(ctx, s.spec.Durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete consumer %s of stream %s: %w", s.spec.Durable, s.cfg.Stream, err)
	}
	again, _ := s.adapt(have.Config, stream.CachedInfo().Config) // with what others have noted in it
	if _, err := stream.CreateConsumer(ctx, again); err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return s.explain(ctx, stream, err)
	}
	return nil
}

// stranded returns the first message of a work queue that its consumer takes for acked, or 0.
func stranded(ctx context.Context, stream jetstream.Stream, have *jetstream.ConsumerInfo, settle time.Duration) (uint64, error) {
	if stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy || have.AckFloor.Stream == 0 {
		return 0, nil
	}
	for _, filter := range filtersOf(have.Config) {
		m, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(filter))
		if err == nil && m.Sequence <= have.AckFloor.Stream {
			select { // it may be about to be removed
			case <-time.After(settle):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if m, err = stream.GetMsg(ctx, m.Sequence); err == nil {
				return m.Sequence, nil
			}
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return 0, fmt.Errorf("look for acked messages in stream %s: %w", stream.CachedInfo().Config.Name, err)
		}
	}
	return 0, nil
}
