package subscribers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// ErrConsumer reports a durable consumer that cannot be used: it has settings that only its deletion could change, or
// another consumer takes the same messages. It is permanent until an operator does something.
var ErrConsumer = errors.New("the consumer cannot be used")

// Codes of the server that jetstream has no name for.
const (
	codeNotUnfiltered = 10099 // a work queue has a consumer without a filter
	codeNotUnique     = 10100 // a work queue has a consumer with an overlapping filter
)

// place remembers where a consumer stood, so that one that was deleted goes on from there.
type place struct {
	stream time.Time // creation of the stream; one that was made anew has other sequences
	floor  uint64    // everything up to here was acked
}

// ensure makes the consumer exist with the settings that correctness depends on and reads them back. Settings that
// can be changed are changed; a consumer that differs in others is refused.
func (s *subscription) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Heartbeat)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", s.cfg.Stream, err)
	}
	info := stream.CachedInfo()
	cons, err := stream.Consumer(ctx, s.spec.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		cons, err = stream.CreateConsumer(ctx, s.wanted(info))
		if errors.Is(err, jetstream.ErrConsumerExists) { // somebody was quicker, perhaps with other settings
			cons, err = stream.Consumer(ctx, s.spec.Durable)
		}
	}
	if err != nil {
		return s.explain(ctx, stream, err)
	}
	have := cons.CachedInfo()
	s.at = place{stream: info.Created, floor: have.AckFloor.Stream} // at once: it may be deleted before the rest is done
	to, changed := s.adapt(have.Config, info.Config)
	if _, err := s.putRight(ctx, stream, have.Config, to, s.wanted(info), changed); err != nil {
		return err
	}
	if changed {
		s.log.InfoContext(ctx, "consumer updated")
	}
	if err := s.rescue(ctx, stream, have); err != nil {
		return err
	}
	s.hamper(pauseOf(have))
	s.created = have.Created
	return nil
}

// putRight updates the consumer if that changes anything, and refuses what then differs from wanted.
func (s *subscription) putRight(ctx context.Context, stream jetstream.Stream, have, to, wanted jetstream.ConsumerConfig, changed bool) (jetstream.ConsumerConfig, error) {
	where := func(err error) error {
		return fmt.Errorf("consumer %s of stream %s: %w", s.spec.Durable, s.cfg.Stream, err)
	}
	if changed {
		if err := refusal(to, wanted); err != nil {
			return have, where(err)
		}
		cons, err := stream.UpdateConsumer(ctx, to)
		if err != nil {
			return have, s.explain(ctx, stream, err)
		}
		have = cons.CachedInfo().Config
	}
	if err := refusal(have, wanted); err != nil {
		return have, where(err)
	}
	return have, nil
}

// wanted is the whole configuration of a consumer that does not exist yet.
func (s *subscription) wanted(stream *jetstream.StreamInfo) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable: s.spec.Durable, FilterSubjects: s.spec.Filters, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: s.cfg.AckWait, MaxDeliver: -1, MaxAckPending: s.maxAckPending(), ReplayPolicy: jetstream.ReplayInstantPolicy,
		Metadata: s.spec.Metadata,
	}
	queue := stream.Config.Retention == jetstream.WorkQueuePolicy
	switch {
	case queue: // the server allows nothing but all, and all is what is not acked
	case s.at.stream.Equal(stream.Created):
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, s.at.floor+1
	case !s.at.stream.IsZero(): // a new stream under the old name: all its messages are new
	case s.spec.Start.New:
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	case !s.spec.Start.At.IsZero():
		at := s.spec.Start.At.UTC()
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
	}
	return cfg
}

// maxAckPending has no limit for unordered consumers, because messages that wait for their next try count against it. One
// that is ordered has in hand what waits.
func (s *subscription) maxAckPending() int {
	if s.cfg.Order != nil {
		return s.cfg.Order.Window
	}
	return -1
}

// adapt returns have with all settings that may be changed as they should be, and whether that changed anything. The
// filters of a work queue's consumer are left alone: the server does not check an update for consumers that take the
// same messages.
func (s *subscription) adapt(have jetstream.ConsumerConfig, stream jetstream.StreamConfig) (jetstream.ConsumerConfig, bool) {
	c, changed := s.steady(have, stream)
	if c.AckWait != s.cfg.AckWait || c.MaxAckPending != s.maxAckPending() {
		c.AckWait, c.MaxAckPending, changed = s.cfg.AckWait, s.maxAckPending(), true
	}
	if stream.Retention != jetstream.WorkQueuePolicy && !sameFilters(filtersOf(c), s.spec.Filters) {
		c.FilterSubject, c.FilterSubjects, changed = "", s.spec.Filters, true
		c.Metadata = with(c.Metadata, schema.MarkFiltersSince, time.Now().UTC().Format(time.RFC3339Nano))
	}
	for name, value := range s.spec.Metadata {
		if c.Metadata[name] != value {
			c.Metadata, changed = with(c.Metadata, name, value), true
		}
	}
	return c, changed
}

// steady is the part of adapt that is the same for all versions and configurations of a program.
func (s *subscription) steady(have jetstream.ConsumerConfig, stream jetstream.StreamConfig) (jetstream.ConsumerConfig, bool) {
	c, changed := have, false
	if c.MaxDeliver != -1 || c.InactiveThreshold != 0 {
		c.MaxDeliver, c.InactiveThreshold, changed = -1, 0, true
	}
	if len(c.BackOff) > 0 { // its first step has become the ack wait
		c.BackOff, c.AckWait, changed = nil, s.cfg.AckWait, true
	}
	if c.MaxRequestBatch != 0 || c.MaxRequestExpires != 0 || c.MaxRequestMaxBytes != 0 {
		c.MaxRequestBatch, c.MaxRequestExpires, c.MaxRequestMaxBytes, changed = 0, 0, 0, true
	}
	if c.Replicas != 0 && c.Replicas < stream.Replicas { // what was acked would be lost before the messages are
		c.Replicas, changed = 0, true
	}
	return c, changed
}

// with returns a copy of m with one more entry.
func with(m map[string]string, name, value string) map[string]string {
	c := make(map[string]string, len(m)+1)
	maps.Copy(c, m)
	c[name] = value
	return c
}

// refusal names everything in which have differs from want that an update cannot change or that must not be changed
// in passing. Where a consumer began is history and is not compared.
func refusal(have, want jetstream.ConsumerConfig) error {
	var faults []string
	differs := func(name string, have, want any) {
		faults = append(faults, fmt.Sprintf("%s is %v, want %v", name, have, want))
	}
	if have.AckPolicy != want.AckPolicy {
		differs("ack policy", have.AckPolicy, want.AckPolicy)
	}
	if have.ReplayPolicy != want.ReplayPolicy {
		differs("replay policy", have.ReplayPolicy, want.ReplayPolicy)
	}
	if have.DeliverSubject != "" {
		differs("deliver subject", have.DeliverSubject, "none")
	}
	if have.MemoryStorage {
		differs("storage", "memory", "the stream's")
	}
	if have.HeadersOnly {
		differs("headers only", true, false)
	}
	if have.RateLimit != 0 {
		differs("rate limit", have.RateLimit, "none")
	}
	if have.PriorityPolicy != want.PriorityPolicy {
		differs("priority policy", have.PriorityPolicy, want.PriorityPolicy)
	}
	if f := filtersOf(have); !sameFilters(f, want.FilterSubjects) {
		differs("filter", f, want.FilterSubjects)
	}
	if have.AckWait != want.AckWait {
		differs("ack wait", have.AckWait, want.AckWait)
	}
	if have.MaxDeliver != want.MaxDeliver {
		differs("max deliver", have.MaxDeliver, want.MaxDeliver)
	}
	if have.MaxAckPending != want.MaxAckPending {
		differs("max ack pending", have.MaxAckPending, want.MaxAckPending)
	}
	if len(faults) == 0 {
		return nil
	}
	return schema.WithKind(schema.Permanent, fmt.Errorf("%w: %s; delete it or choose another name", ErrConsumer, strings.Join(faults, ", ")))
}

func filtersOf(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

func sameFilters(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// explain marks what the server refuses for good as permanent and names the other side of a clash.
func (s *subscription) explain(ctx context.Context, stream jetstream.Stream, err error) error {
	where := fmt.Errorf("consumer %s of stream %s: %w", s.spec.Durable, s.cfg.Stream, err)
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.Code != 400 {
		return where
	}
	if api.ErrorCode != codeNotUnique && api.ErrorCode != codeNotUnfiltered {
		return schema.WithKind(schema.Permanent, fmt.Errorf("%w: %w", ErrConsumer, where))
	}
	// The time for the attempt may be over; to say who is in the way has a time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	list := stream.ListConsumers(ctx)
	for other := range list.Info() {
		filters := filtersOf(other.Config)
		if len(filters) == 0 {
			filters = []string{">"}
		}
		if mine, theirs, found := anyOverlap(s.spec.Filters, filters); found && other.Name != s.spec.Durable {
			where = fmt.Errorf("%w: filter %q overlaps with %q of consumer %s", where, mine, theirs, other.Name)
		}
	}
	if err := list.Err(); err != nil {
		where = fmt.Errorf("%w: one of the filters %q overlaps with that of another consumer, which cannot be named: %w", where, s.spec.Filters, err)
	}
	return schema.WithKind(schema.Permanent, fmt.Errorf("%w: %w", ErrConsumer, where))
}
