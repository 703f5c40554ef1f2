package subscribers_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/subscribers"
)

func TestAckRemovesTheMessage(t *testing.T) {
	for _, double := range []bool{false, true} {
		t.Run(fmt.Sprintf("double=%v", double), func(t *testing.T) {
			b := setup(t)
			b.publish(t, 1)
			told := b.settlements(t)
			msgs := subscribe(t, b.subscriber(t, func(c *subscribers.Config) { c.DoubleAck = double }))
			m := next(t, msgs)
			if m.UUID != "0" || string(m.Payload) != "0" {
				t.Errorf("got %q with payload %q, want 0 and 0", m.UUID, m.Payload)
			}
			d := delivery(t, m)
			if d.Stream != "ORDERS" || d.Consumer != durable || d.Subject != topic || d.Sequence != 1 || d.Delivered != 1 || time.Since(d.Stored) > time.Minute {
				t.Errorf("delivery is %+v", d)
			}
			m.Ack()
			b.left(t, 0)
			select {
			case <-m.Context().Done():
			case <-time.After(patience):
				t.Error("the context did not end after the ack")
			}
			word := map[bool]string{false: "+ACK", true: "+ACK?"}[double]
			testkit.Eventually(t, patience, func() error {
				if told.count(word) != 1 {
					return fmt.Errorf("told %s %d times, want once", word, told.count(word))
				}
				return nil
			})
		})
	}
}

func TestNackBringsTheMessageBack(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		b := setup(t)
		b.publish(t, 1)
		msgs := subscribe(t, b.subscriber(t, func(c *subscribers.Config) { c.AckWait = time.Minute }))
		next(t, msgs).Nack()
		start := time.Now()
		m := next(t, msgs)
		if d := delivery(t, m); d.Delivered != 2 || time.Since(start) > 5*time.Second {
			t.Errorf("delivery %d after %v, want the second at once", d.Delivered, time.Since(start))
		}
	})
	t.Run("after its wait, which holds back nobody else", func(t *testing.T) {
		b := setup(t)
		b.publish(t, 2)
		const wait = 1500 * time.Millisecond
		msgs := subscribe(t, b.subscriber(t, func(c *subscribers.Config) { c.MaxInFlight = 1 }))
		first := next(t, msgs)
		delivery(t, first).RetryIn(wait)
		start := time.Now()
		first.Nack()
		if m := next(t, msgs); m.UUID != "1" {
			t.Errorf("got %q while 0 waits, want 1", m.UUID)
		} else {
			m.Ack()
		}
		m := next(t, msgs)
		if took := time.Since(start); m.UUID != "0" || took < wait || took > wait+time.Second {
			t.Errorf("got %q after %v, want 0 after %v", m.UUID, took, wait)
		}
	})
}

func TestOrderedHoldsBackWhatFollows(t *testing.T) {
	b := setup(t)
	b.publish(t, 10)
	leases := new(testkit.Leases)
	ordered := func(c *subscribers.Config) { c.Order = inOneLine(leases) }
	// Two processes share the consumer; still one message of a key at a time.
	one, two := subscribe(t, b.subscriber(t, ordered)), subscribe(t, b.subscriber(t, ordered))
	var got []string
	var naks int
	for len(got) < 10 {
		var m *message.Message
		select {
		case m = <-one:
		case m = <-two:
		case <-time.After(patience):
			t.Fatalf("stuck after %v", got)
		}
		if d := delivery(t, m); d.Delivered <= 2 && len(got)%3 == 0 {
			d.RetryIn(100 * time.Millisecond)
			naks++
			m.Nack()
			continue
		}
		select {
		case other := <-one:
			t.Fatalf("got %q while %q is being handled", other.UUID, m.UUID)
		case other := <-two:
			t.Fatalf("got %q while %q is being handled", other.UUID, m.UUID)
		case <-time.After(20 * time.Millisecond):
		}
		got = append(got, m.UUID)
		m.Ack()
	}
	if want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}; !slices.Equal(got, want) || naks != 8 {
		t.Errorf("handled %v with %d naks, want %v with 8", got, naks, want)
	}
}

func TestC11_SlowHandlersAreNotDoubled(t *testing.T) {
	b := setup(t)
	const messages = 10
	b.publish(t, messages)
	told := b.settlements(t)
	var mu sync.Mutex
	starts := make(map[string]int)
	var running, most int
	handle := func(m *message.Message) {
		mu.Lock()
		starts[m.UUID]++
		running++
		most = max(most, running)
		mu.Unlock()
		<-time.After(1600 * time.Millisecond) // more than the ack wait, and three rounds of them
		mu.Lock()
		running--
		mu.Unlock()
		m.Ack()
	}
	slow := func(c *subscribers.Config) { c.AckWait, c.MaxInFlight = 500*time.Millisecond, 2 }
	for range 2 { // replicas
		msgs := subscribe(t, b.subscriber(t, slow))
		go func() {
			for m := range msgs {
				go handle(m)
			}
		}()
	}
	b.left(t, 0)
	mu.Lock()
	defer mu.Unlock()
	if len(starts) != messages || most > 4 {
		t.Errorf("%d messages were started, at most %d at a time; want %d and 4", len(starts), most, messages)
	}
	for id, n := range starts {
		if n != 1 {
			t.Errorf("message %s was started %d times", id, n)
		}
	}
	if n := told.count("+WPI"); n < messages*6 {
		t.Errorf("progress was reported %d times, want at least %d", n, messages*6)
	}
}

func TestFetchesNoMoreThanThereIsRoomFor(t *testing.T) {
	b := setup(t)
	b.publish(t, 20)
	msgs := subscribe(t, b.subscriber(t, func(c *subscribers.Config) { c.MaxInFlight = 3 }))
	testkit.Eventually(t, patience, func() error {
		if n := b.info(t).NumAckPending; n != 3 {
			return fmt.Errorf("%d messages are out, want 3", n)
		}
		return nil
	})
	held := []*message.Message{next(t, msgs), next(t, msgs), next(t, msgs)}
	none(t, msgs, 300*time.Millisecond)
	if n := b.info(t).NumAckPending; n != 3 {
		t.Errorf("%d messages are out, want 3", n)
	}
	held[1].Ack()
	next(t, msgs)
	none(t, msgs, 100*time.Millisecond)
}

// Quick handlers have messages that wait for them. When the handlers become slow, what waits is not handed to somebody
// else, however long that lasts, and a stop gives it back at once.
func TestC11_WhatWaitsForAHandIsKept(t *testing.T) {
	b := setup(t)
	b.publish(t, 400)
	const hands, wait = 4, 600 * time.Millisecond
	settings := func(c *subscribers.Config) { c.MaxInFlight, c.AckWait, c.CloseTimeout = hands, wait, 2*patience }
	sub := b.subscriber(t, settings)
	msgs := subscribe(t, sub)
	for range 200 {
		next(t, msgs).Ack()
	}
	var held []*message.Message
	for range hands {
		held = append(held, next(t, msgs))
	}
	none(t, msgs, 3*wait)
	if info := b.info(t); info.NumAckPending <= hands || info.NumRedelivered != 0 {
		t.Errorf("%d messages are out, %d of them again; want more than %d, and none again", info.NumAckPending, info.NumRedelivered, hands)
	}
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	other := subscribe(t, b.subscriber(t, settings))
	for range 400 - 200 - hands {
		next(t, other).Ack()
	}
	for _, m := range held {
		m.Ack()
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	b.left(t, 0)
}

func TestMessageContextKeepsValuesAndOutlivesTheSubscription(t *testing.T) {
	b := setup(t)
	b.publish(t, 2)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	sub := b.subscriber(t)
	msgs, err := sub.Subscribe(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	m := next(t, msgs)
	cancel()
	select {
	case _, open := <-msgs:
		if open { // handed out in the same moment
			<-msgs
		}
	case <-time.After(patience):
		t.Fatal("the channel is open although the subscription has ended")
	}
	if m.Context().Err() != nil || m.Context().Value(key{}) != "value" {
		t.Errorf("context: error %v, value %v; want a live one with the value", m.Context().Err(), m.Context().Value(key{}))
	}
	m.Ack()
	b.left(t, 1)
}
