package subscribers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/subscribers"
)

const heartbeat = 200 * time.Millisecond // as in config

func TestC17_ServerRestart(t *testing.T) {
	b := setup(t)
	sub := b.subscriber(t)
	msgs := subscribe(t, sub)
	testkit.Eventually(t, patience, healthy(sub))
	b.server.Stop()
	testkit.Eventually(t, 2*heartbeat+10*time.Second, unhealthy(sub, "not consuming orders.placed"))
	select { // longer than any wait between tries
	case <-msgs:
		t.Fatal("a message or the end came from a server that is down")
	case <-time.After(10 * heartbeat):
	}
	b.server.Restart()
	b.js = b.server.JetStream(t)
	b.publish(t, 1)
	next(t, msgs).Ack()
	b.left(t, 0)
	testkit.Eventually(t, patience, healthy(sub))
}

func TestC17_ConsumerDeleted(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			b := setup(t)
			b.publish(t, 2)
			sub := b.subscriber(t, func(c *subscribers.Config) { c.MaxInFlight = 1 })
			msgs := subscribe(t, sub)
			first := next(t, msgs)
			if !busy {
				first.Ack()
				next(t, msgs).Ack()
				b.left(t, 0)
				b.publish(t, 1)
				next(t, msgs).Ack()
				b.left(t, 0)
			}
			if err := b.js.DeleteConsumer(t.Context(), "ORDERS", durable); err != nil {
				t.Fatal(err)
			}
			if busy { // its ack goes nowhere: it comes again
				first.Ack()
				first = next(t, msgs)
				first.Ack()
				next(t, msgs).Ack()
				b.left(t, 0)
			}
			b.publish(t, 1)
			next(t, msgs).Ack()
			b.left(t, 0)
			testkit.Eventually(t, patience, healthy(sub))
		})
	}
}

func TestC17_StreamDeleted(t *testing.T) {
	b := setup(t)
	sub := b.subscriber(t)
	msgs := subscribe(t, sub)
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 2*heartbeat+10*time.Second, unhealthy(sub, "stream not found"))
	b.stream(t, jetstream.WorkQueuePolicy)
	b.publish(t, 1)
	next(t, msgs).Ack()
	b.left(t, 0)
	testkit.Eventually(t, patience, healthy(sub))
}

func TestStreamAppearsLater(t *testing.T) {
	b := setup(t)
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	sub := b.subscriber(t)
	msgs := subscribe(t, sub)
	wantErr(t, sub.Health(), jetstream.ErrStreamNotFound, "not consuming orders.placed", "ORDERS")
	b.stream(t, jetstream.WorkQueuePolicy)
	b.publish(t, 1)
	next(t, msgs).Ack()
	testkit.Eventually(t, patience, healthy(sub))
}

func TestC17_SilentServer(t *testing.T) {
	b := setup(t)
	p := netproxy.Start(t, b.server.URL())
	sub, err := subscribers.New(testkit.JetStream(t, through(t, p)), config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	msgs := subscribe(t, sub)
	b.waiting(t)
	testkit.Eventually(t, patience, healthy(sub))
	p.Freeze(netproxy.Both)
	testkit.Eventually(t, 2*heartbeat+10*time.Second, unhealthy(sub, "not consuming orders.placed: the server is silent"))
	p.Heal()
	b.publish(t, 1)
	next(t, msgs).Ack()
	b.left(t, 0)
	testkit.Eventually(t, patience, healthy(sub))
}

func TestClosedConnection(t *testing.T) {
	b := setup(t)
	js := b.server.JetStream(t)
	sub, err := subscribers.New(js, config(t))
	if err != nil {
		t.Fatal(err)
	}
	msgs := subscribe(t, sub)
	js.Conn().Close()
	testkit.Eventually(t, 2*heartbeat+10*time.Second, unhealthy(sub, "the connection is CLOSED"))
	none(t, msgs, 5*heartbeat)
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-msgs; open {
		t.Error("the channel is open after Close")
	}
}

// What a handler did while the server was away is acked when it is back.
func TestAckAcrossARestart(t *testing.T) {
	b := setup(t)
	b.publish(t, 1)
	js := b.server.JetStream(t)
	sub, err := subscribers.New(js, config(t, func(c *subscribers.Config) { c.AckWait = time.Minute }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	msgs := subscribe(t, sub)
	m := next(t, msgs)
	b.server.Stop()
	testkit.Eventually(t, patience, func() error { // else the ack goes down with the server, as one that is not confirmed may
		if status := js.Conn().Status(); status == nats.CONNECTED {
			return fmt.Errorf("the client is %v", status)
		}
		return nil
	})
	m.Ack()
	select {
	case <-m.Context().Done():
		t.Error("the context ended before the server knew of the ack")
	case <-time.After(300 * time.Millisecond):
	}
	b.server.Restart()
	b.js = b.server.JetStream(t)
	b.left(t, 0)
	none(t, msgs, 300*time.Millisecond)
}

// An ack that gets lost on its way is sent again while the message is still this run's.
func TestDoubleAckThatGetsLost(t *testing.T) {
	b := setup(t)
	b.publish(t, 1)
	told := b.settlements(t)
	p := netproxy.Start(t, b.server.URL())
	sub, err := subscribers.New(testkit.JetStream(t, through(t, p)), config(t, func(c *subscribers.Config) { c.DoubleAck, c.AckWait = true, 6*time.Second }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	m := next(t, subscribe(t, sub))
	p.Swallow(netproxy.Up)
	m.Ack()
	select {
	case <-m.Context().Done():
		t.Error("the context ended before the server knew of the ack")
	case <-time.After(300 * time.Millisecond):
	}
	p.Heal()
	b.left(t, 0)
	if n, delivered := told.count("+ACK?"), b.info(t).Delivered.Consumer; n != 1 || delivered != 1 {
		t.Errorf("the server heard %d acks of %d deliveries, want one of one", n, delivered)
	}
}

// A run that the server has not heard of for the whole ack wait has lost its message and acks nothing.
func TestC11_LateRunDoesNotAck(t *testing.T) {
	b := setup(t)
	b.publish(t, 1)
	msgs := subscribe(t, b.subscriber(t, func(c *subscribers.Config) { c.AckWait = 600 * time.Millisecond }))
	late := next(t, msgs)
	b.server.Stop()
	<-time.After(900 * time.Millisecond)
	b.server.Restart()
	b.js = b.server.JetStream(t)
	told := b.settlements(t)
	late.Ack()
	m := next(t, msgs)
	if d := delivery(t, m); d.Delivered < 2 {
		t.Errorf("delivery %d, want the second or later", d.Delivered)
	}
	<-time.After(500 * time.Millisecond) // the connection is back; a late ack would go out now
	if n := told.count("+ACK"); n != 0 {
		t.Errorf("the late run acked %d times", n)
	}
	m.Ack()
	b.left(t, 0)
}

// A subscription to new events only whose consumer is deleted goes on from where it stood.
func TestDeletedConsumerGoesOn(t *testing.T) {
	b := setup(t)
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	b.stream(t, jetstream.LimitsPolicy)
	b.publish(t, 3) // before the subscription
	sub := b.subscriber(t, func(c *subscribers.Config) {
		c.Consumer = func(topic string) subscribers.ConsumerSpec {
			return subscribers.ConsumerSpec{Durable: durable, Filters: []string{topic}, Start: subscribers.Start{New: true}}
		}
	})
	msgs := subscribe(t, sub)
	b.publish(t, 1)
	if d := delivery(t, next(t, msgs)); d.Sequence != 4 {
		t.Fatalf("began at %d, want 4", d.Sequence)
	}
	// Unacked, and another one that nobody has seen.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.js.DeleteConsumer(ctx, "ORDERS", durable); err != nil {
		t.Fatal(err)
	}
	b.publish(t, 1)
	seen := make(map[uint64]bool)
	for len(seen) < 2 {
		m := next(t, msgs)
		seen[delivery(t, m).Sequence] = true
		m.Ack()
	}
	if !seen[4] || !seen[5] {
		t.Errorf("got %v, want 4 and 5", seen)
	}
}

func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t, 3)
	js := c.JetStream(t)
	testkit.Eventually(t, time.Minute, func() error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3})
		if err != nil && !testkit.IsPeerOffline(err) {
			t.Fatal(err)
		}
		return err
	})
	const messages = 300
	for i := range messages {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: topic, Header: nats.Header{"_watermill_message_uuid": {fmt.Sprint(i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := subscribers.New(c.JetStream(t), config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	msgs := subscribe(t, sub)
	seen := make(map[string]int)
	more := make(chan string)
	go func() { // an ack that a dying leader took along makes its message come again
		for m := range msgs {
			m.Ack()
			more <- m.UUID
		}
		close(more)
	}()
	await := func(n int) {
		t.Helper()
		deadline := time.After(patience)
		for len(seen) < n {
			select {
			case id := <-more:
				seen[id]++
			case <-deadline:
				t.Fatalf("%d of %d messages came", len(seen), n)
			}
		}
	}
	await(messages / 3)
	if err := c.StepDown("ORDERS"); err != nil {
		t.Error(err)
	}
	await(messages / 2)
	killed := max(c.Leader("ORDERS"), 0)
	c.Kill(killed)
	await(messages)
	c.Restart(killed)
	go func() {
		for range more {
		}
	}()
	testkit.Eventually(t, patience, func() error {
		s, err := js.Stream(t.Context(), "ORDERS")
		if err != nil {
			return err
		}
		if n := s.CachedInfo().State.Msgs; n != 0 {
			return fmt.Errorf("%d messages are left", n)
		}
		return sub.Health()
	})
}
