package subscribers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/subscribers"
)

func TestC08_CloseLetsHandlersFinish(t *testing.T) {
	b := setup(t)
	b.publish(t, 15)
	sub := b.subscriber(t, func(c *subscribers.Config) { c.MaxInFlight, c.CloseTimeout = 10, 10*time.Second })
	msgs := subscribe(t, sub)
	var wg sync.WaitGroup
	var dead, late atomic.Int64
	var closing atomic.Bool
	started := make(chan struct{}, 15)
	wg.Go(func() {
		for m := range msgs {
			if closing.Load() {
				late.Add(1)
			}
			wg.Go(func() {
				started <- struct{}{}
				<-time.After(500 * time.Millisecond)
				if m.Context().Err() != nil {
					dead.Add(1)
				}
				m.Ack()
			})
		}
	})
	for range 10 {
		<-started
	}
	closing.Store(true)
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := dead.Load(); n != 0 {
		t.Errorf("%d handlers ended with a dead context", n)
	}
	if n := late.Load(); n != 0 {
		t.Errorf("%d messages were taken after the stop began", n)
	}
	if n := sub.Unfinished(); n != 0 {
		t.Errorf("%d messages are unfinished, want 0", n)
	}
	b.left(t, 5)
	again := subscribe(t, b.subscriber(t))
	for range 5 {
		m := next(t, again)
		if d := delivery(t, m); d.Sequence <= 10 {
			t.Errorf("message %d was handled again", d.Sequence)
		}
		m.Ack()
	}
	b.left(t, 0)
}

func TestC08_CloseGivesUpAfterItsLimit(t *testing.T) {
	b := setup(t)
	b.publish(t, 3)
	sub := b.subscriber(t, func(c *subscribers.Config) { c.CloseTimeout = 200 * time.Millisecond })
	msgs := subscribe(t, sub)
	obedient, stubborn, quick := next(t, msgs), next(t, msgs), next(t, msgs)
	quick.Ack()
	go func() {
		<-obedient.Context().Done()
		obedient.Nack()
	}()
	start := time.Now()
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("Close took %v, want its limit and a second", took)
	}
	if n := sub.Unfinished(); n != 1 {
		t.Errorf("%d messages are unfinished, want 1", n)
	}
	if cause := context.Cause(stubborn.Context()); cause == nil || errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, want the word that Close waits no longer", cause)
	}
	again := subscribe(t, b.subscriber(t))
	for range 2 {
		m := next(t, again)
		if d := delivery(t, m); d.Delivered != 2 {
			t.Errorf("message %s has delivery %d, want 2", m.UUID, d.Delivered)
		}
		m.Ack()
	}
	b.left(t, 0)
}

func TestCloseGivesBackWhatWasNotHandedOut(t *testing.T) {
	b := setup(t)
	b.publish(t, 10)
	long := func(c *subscribers.Config) { c.AckWait = time.Minute }
	sub := b.subscriber(t, long)
	msgs := subscribe(t, sub)
	next(t, msgs).Ack()
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	again := subscribe(t, b.subscriber(t, long))
	for range 9 {
		next(t, again).Ack()
	}
	b.left(t, 0)
}

// What the server has sent and the client has not seen is not left to its ack wait either.
func TestCloseGivesBackWhatIsOnItsWay(t *testing.T) {
	b := setup(t)
	p := netproxy.Start(t, b.server.URL())
	long := func(c *subscribers.Config) { c.AckWait = time.Minute }
	sub, err := subscribers.New(testkit.JetStream(t, through(t, p)), config(t, long))
	if err != nil {
		t.Fatal(err)
	}
	msgs := subscribe(t, sub)
	b.waiting(t)
	p.Freeze(netproxy.Both)
	b.publish(t, 5)
	testkit.Eventually(t, patience, func() error {
		if n := b.info(t).NumAckPending; n != 5 {
			return fmt.Errorf("%d messages are on their way, want 5", n)
		}
		return nil
	})
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	<-time.After(50 * time.Millisecond)
	p.Heal()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, open := <-msgs; open {
		t.Error("a message was handed out after Close")
	}
	again := subscribe(t, b.subscriber(t, long))
	for range 5 {
		next(t, again).Ack()
	}
	b.left(t, 0)
}

func TestConsumerSurvivesClose(t *testing.T) {
	b := setup(t)
	b.publish(t, 2)
	sub := b.subscriber(t)
	first := next(t, subscribe(t, sub))
	first.Ack()
	b.left(t, 1)
	created := b.info(t).Created
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sub.Close(); err != nil {
		t.Errorf("the second Close gives %v", err)
	}
	if _, err := sub.Subscribe(t.Context(), topic); !errors.Is(err, subscribers.ErrClosed) {
		t.Errorf("Subscribe after Close gives %v, want ErrClosed", err)
	}
	if err := sub.Health(); !errors.Is(err, subscribers.ErrClosed) {
		t.Errorf("Health after Close gives %v, want ErrClosed", err)
	}
	b.server.Restart()
	again := subscribe(t, b.subscriber(t))
	if m := next(t, again); m.UUID == first.UUID {
		t.Errorf("got %q again", m.UUID)
	}
	if !b.info(t).Created.Equal(created) {
		t.Error("the consumer was made anew")
	}
}

// Messages arrive all the time while subscribers come and go; nothing may be sent on a closed channel or get lost.
func TestCancelWhileMessagesArrive(t *testing.T) {
	b := setup(t)
	const messages = 400
	go func() {
		for range messages {
			if _, err := b.js.Publish(context.Background(), topic, nil); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	sub := b.subscriber(t, func(c *subscribers.Config) { c.AckWait = time.Minute })
	seen := make(map[uint64]bool)
	deadline := time.After(patience)
	for len(seen) < messages {
		ctx, cancel := context.WithCancel(context.Background())
		msgs, err := sub.Subscribe(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		for range 7 {
			select {
			case m := <-msgs:
				seen[delivery(t, m).Sequence] = true
				m.Ack()
			case <-time.After(100 * time.Millisecond):
			case <-deadline:
				t.Fatalf("%d of %d messages came", len(seen), messages)
			}
		}
		cancel()
		for m := range msgs {
			m.Nack()
		}
	}
	b.left(t, 0)
}
