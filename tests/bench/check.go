package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A tracker notes when messages are committed and when they are handled, and says what is wrong with them. It is safe
// for concurrent use.
type tracker struct {
	mu        sync.Mutex
	want      int // -1 until it is known
	committed []time.Time
	handled   []time.Time
	last      [keys]int // one more than the number of each key's last message
	n         int
	doubled   int
	reordered int
	foreign   int
	done      chan struct{} // closed when all were handled
}

// newTracker returns a tracker for want messages; -1 if it is to be told later.
func newTracker(want int) *tracker {
	return &tracker{want: want, done: make(chan struct{})}
}

// put notes a time in a list that grows as needed.
func put(list *[]time.Time, i int, t time.Time) {
	if i >= len(*list) {
		*list = append(*list, make([]time.Time, max(i+1-len(*list), len(*list), 1024))...)
	}
	(*list)[i] = t
}

// commit notes that the transaction of messages from to to-1 has committed.
func (t *tracker) commit(from, to int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for seq := from; seq < to; seq++ {
		put(&t.committed, seq, now)
	}
}

// saw notes a message that was handled or read back.
func (t *tracker) saw(payload []byte) {
	seq, now := seqOf(payload), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case seq < 0 || t.want >= 0 && seq >= t.want:
		t.foreign++
		return
	case seq < len(t.handled) && !t.handled[seq].IsZero():
		t.doubled++
		return
	}
	put(&t.handled, seq, now)
	key := seq % keys
	if t.last[key] > seq+1 {
		t.reordered++
	}
	t.last[key] = seq + 1
	t.n++
	t.finishLocked()
}

func (t *tracker) finishLocked() {
	if t.n == t.want {
		close(t.done)
	}
}

// expect says how many messages there are.
func (t *tracker) expect(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = n
	t.finishLocked()
}

// await returns when all messages were handled, or with an error after a time.
func (t *tracker) await(ctx context.Context) error {
	const limit = 2 * time.Minute
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(limit):
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Errorf("%d of %d messages after %v", t.n, t.want, limit)
	}
}

// latency is the time from commit to handled of each message from a number on: none if it was handled before its writer
// knew of the commit.
func (t *tracker) latency(from int) *quantiles {
	t.mu.Lock()
	defer t.mu.Unlock()
	var times []time.Duration
	for seq, at := range t.committed {
		if seq >= from && !at.IsZero() && seq < len(t.handled) && !t.handled[seq].IsZero() {
			times = append(times, max(0, t.handled[seq].Sub(at)))
		}
	}
	return quantilesOf(times)
}

// fault is what the messages show: none lost, none twice, and if ordered each key's in order.
func (t *tracker) fault(inOrder bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	if t.n != t.want {
		errs = append(errs, fmt.Errorf("%d of %d messages are missing", t.want-t.n, t.want))
	}
	if t.doubled > 0 {
		errs = append(errs, fmt.Errorf("%d messages came twice", t.doubled))
	}
	if t.foreign > 0 {
		errs = append(errs, fmt.Errorf("%d messages are not of this run", t.foreign))
	}
	if inOrder && t.reordered > 0 {
		errs = append(errs, fmt.Errorf("%d messages came before others of their key", t.reordered))
	}
	return errors.Join(errs...)
}

// checkStream reads a stream back.
func checkStream(ctx context.Context, js jetstream.JetStream, name, filter string, want int, inOrder bool) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("check stream %s: %w", name, err)
	}
	// The stream's leader counts: the consumer may be on a server that has yet to follow.
	stored, err := messagesOf(ctx, stream, filter)
	if err != nil {
		return fmt.Errorf("check stream %s: %w", name, err)
	}
	t, err := readBack(ctx, stream, filter, stored, want)
	// One of three busy servers may not serve a consumer it was given: the next consumer may be on another.
	for again := 0; again < 3 && errors.Is(err, nats.ErrTimeout); again++ {
		t, err = readBack(ctx, stream, filter, stored, want)
	}
	if err != nil {
		return fmt.Errorf("check stream %s: %w", name, err)
	}
	if err := t.fault(inOrder); err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	return nil
}

// readBack reads so many stored messages through a consumer of its own.
func readBack(ctx context.Context, stream jetstream.Stream, filter string, stored, want int) (_ *tracker, err error) {
	// Nothing is acked: a work queue keeps what it has.
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, AckWait: time.Hour,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)) }()
	t := newTracker(want)
	// A server that is silent for a while, as one of three that are busy may be, is asked again.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(4000), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for range stored {
		m, err := messages.Next(jetstream.NextMaxWait(20 * time.Second))
		if err != nil {
			return nil, fmt.Errorf("after %d of %d messages: %w", t.n, stored, errors.Join(err, context.Cause(ctx)))
		}
		t.saw(m.Data())
	}
	return t, nil
}

// messagesOf is how many messages a stream holds on the subjects of a filter.
func messagesOf(ctx context.Context, stream jetstream.Stream, filter string) (int, error) {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, n := range info.State.Subjects {
		sum += int(n)
	}
	return sum, nil
}

// checkSettled proves that a work queue holds no message any more.
func checkSettled(ctx context.Context, js jetstream.JetStream, name, filter string) error {
	return checkLeft(ctx, js, name, filter, 0)
}

// checkLeft proves that a work queue holds so many messages, after a while: acks are not waited for.
func checkLeft(ctx context.Context, js jetstream.JetStream, name, filter string, want int) error {
	left := 0
	for range 100 {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if left, err = messagesOf(ctx, stream, filter); err != nil {
			return err
		}
		if left == want {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("stream %s still has %d messages, want %d", name, left, want)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
