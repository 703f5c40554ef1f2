package subscribers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/subscribers"
)

// inOneLine gives all messages the same key.
func inOneLine(l subscribers.Lease) *subscribers.Order {
	return &subscribers.Order{Key: func(*subscribers.Delivery) string { return "all" }, Lease: l}
}

// byKey gives a message the key that its header says.
func byKey(l subscribers.Lease, edits ...func(*subscribers.Order)) func(*subscribers.Config) {
	o := &subscribers.Order{Key: func(d *subscribers.Delivery) string { return d.Header.Get("key") }, Lease: l}
	for _, edit := range edits {
		edit(o)
	}
	return func(c *subscribers.Config) { c.Order = o }
}

// publishKeyed stores messages whose ids are their key and a number: "a1" has the key a, "1" has none.
func (b *bundle) publishKeyed(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		b.publishMsg(t, &nats.Msg{Subject: topic, Header: nats.Header{"_watermill_message_uuid": {id}, "key": {strings.TrimRight(id, "0123456789")}}})
	}
}

func wantNext(t *testing.T, msgs <-chan *message.Message, ids ...string) map[string]*message.Message {
	t.Helper()
	got := make(map[string]*message.Message)
	for range ids {
		m := next(t, msgs)
		if !slices.Contains(ids, m.UUID) || got[m.UUID] != nil {
			t.Fatalf("got %q, want each of %v once", m.UUID, ids)
		}
		got[m.UUID] = m
	}
	return got
}

func TestOrder_a_waiting_retry_holds_back_only_its_key(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2", "b1", "1", "b2", "2")
	msgs := subscribe(t, b.subscriber(t, byKey(new(testkit.Leases))))
	first := wantNext(t, msgs, "a1", "b1", "1", "2")
	none(t, msgs, 100*time.Millisecond) // a2 and b2 are behind
	const wait = time.Second
	delivery(t, first["a1"]).RetryIn(wait)
	start := time.Now()
	first["a1"].Nack()
	first["b1"].Ack()
	wantNext(t, msgs, "b2")["b2"].Ack()
	first["1"].Nack()
	if d := delivery(t, wantNext(t, msgs, "1")["1"]); d.Delivered != 2 || d.Sequence != 4 {
		t.Errorf("delivery is %+v, want the second one of message 4", d)
	}
	b.publishKeyed(t, "a3")
	again := next(t, msgs)
	if took := time.Since(start); again.UUID != "a1" || took < wait || took > wait+2*time.Second || delivery(t, again).Delivered != 2 {
		t.Errorf("got %q after %v at its delivery %d, want a1 after %v", again.UUID, took, delivery(t, again).Delivered, wait)
	}
	again.Ack()
	next(t, msgs).Ack()
	if m := next(t, msgs); m.UUID != "a3" {
		t.Errorf("got %q, want a3", m.UUID)
	}
}

func TestOrder_no_more_at_once_than_allowed(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "1", "2", "3", "a1", "a2")
	msgs := subscribe(t, b.subscriber(t, byKey(new(testkit.Leases)), func(c *subscribers.Config) { c.MaxInFlight = 2 }))
	out := wantNext(t, msgs, "1", "2")
	none(t, msgs, 100*time.Millisecond)
	out["2"].Ack()
	wantNext(t, msgs, "3")
}

// The next process takes over at once after a stop, and gets what waited, too.
func TestOrder_stop_gives_everything_back(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2", "b1", "b2", "1")
	leases := new(testkit.Leases)
	one := b.subscriber(t, byKey(leases), minute, func(c *subscribers.Config) { c.CloseTimeout = 10 * time.Second })
	two := b.subscriber(t, byKey(leases), minute)
	msgs := subscribe(t, one)
	out := wantNext(t, msgs, "a1", "b1", "1")
	standby := subscribe(t, two)
	testkit.Eventually(t, patience, func() error {
		if st := two.Standing(); !st.Elsewhere || st.Due || two.Health() != nil {
			return fmt.Errorf("the other one is %+v, health %w", st, two.Health())
		}
		return nil
	})
	delivery(t, out["a1"]).RetryIn(time.Hour)
	out["a1"].Nack()
	none(t, standby, 100*time.Millisecond)
	closed := make(chan error)
	go func() { closed <- one.Close() }()
	if _, open := <-msgs; open {
		t.Error("something was handed out after the close")
	}
	out["1"].Ack()
	delivery(t, out["b1"]).RetryIn(time.Hour) // what is not done is given back, and not to wait here
	out["b1"].Nack()
	if err := <-closed; err != nil || one.Unfinished() != 0 {
		t.Errorf("close returned %v, %d unfinished", err, one.Unfinished())
	}
	wantNext(t, standby, "a1", "b1")
	if st := two.Standing(); st.Held != 4 || !st.Due || st.Elsewhere {
		t.Errorf("the other one is %+v", st)
	}
}

// What a process that has died had in hand comes again after its ack wait, and in any order; nothing overtakes it.
func TestOrder_take_over_after_a_crash(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2", "b1")
	leases := new(testkit.Leases)
	long := func(c *subscribers.Config) { c.AckWait = 4 * time.Second }
	conn := b.server.JetStream(t)
	dead, err := subscribers.New(conn, config(t, byKey(leases), long))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dead.Close() })
	wantNext(t, subscribe(t, dead), "a1", "b1")
	conn.Conn().Close()
	leases.Fail(errors.New("died")) // its renewals, too
	leases.Steal()
	testkit.Eventually(t, patience, func() error { // it notices that it cannot renew
		if st := dead.Standing(); st.Held > 2 {
			return fmt.Errorf("%d messages are still in its hand", st.Held)
		}
		return nil
	})
	leases.Fail(nil)
	b.publishKeyed(t, "a3", "c1")
	sub := b.subscriber(t, byKey(leases), long)
	msgs := subscribe(t, sub)
	testkit.Eventually(t, patience, unhealthy(sub, "waiting for 3 messages that were handed to another process before"))
	out := wantNext(t, msgs, "a1", "b1", "c1")
	out["a1"].Ack()
	wantNext(t, msgs, "a2")["a2"].Ack()
	wantNext(t, msgs, "a3")
	testkit.Eventually(t, patience, healthy(sub))
}

// A lease that is lost ends what runs, and what comes later is another process's.
func TestOrder_lost_lease(t *testing.T) {
	for name, lose := range map[string]func(*testkit.Leases){
		"taken over":  func(l *testkit.Leases) { l.Steal() },
		"unreachable": func(l *testkit.Leases) { l.Fail(errors.New("the database is away")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.publishKeyed(t, "a1", "a2", "b1")
			leases := new(testkit.Leases)
			sub := b.subscriber(t, byKey(leases))
			msgs := subscribe(t, sub)
			out := wantNext(t, msgs, "a1", "b1")
			held := sub.Standing().Held
			lose(leases)
			if name == "taken over" { // another one is quicker than the renewal
				if ok, _, err := leases.Hold(t.Context(), "order/ORDERS/"+durable, "other", 3*time.Second); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			for _, m := range out {
				select {
				case <-m.Context().Done():
				case <-time.After(patience):
					t.Fatalf("the context of %s goes on", m.UUID)
				}
				m.Nack()
			}
			testkit.Eventually(t, patience, func() error {
				if st := sub.Standing(); st.Held != 0 || held != 3 {
					return fmt.Errorf("%d messages were in hand, %d are", held, st.Held)
				}
				return nil
			})
			if name == "unreachable" {
				testkit.Eventually(t, patience, unhealthy(sub, "the database is away"))
			}
			none(t, msgs, 100*time.Millisecond)
			leases.Fail(nil)
			wantNext(t, msgs, "a1", "b1")
		})
	}
}

// Two processes that both believe to have the lease hand nothing out of order: the server's numbers tell them.
func TestOrder_does_not_rest_on_the_lease(t *testing.T) {
	b := setup(t)
	one := b.subscriber(t, byKey(new(testkit.Leases)))
	msgs := subscribe(t, one)
	b.waiting(t)
	two := b.subscriber(t, byKey(new(testkit.Leases)))
	others := subscribe(t, two)
	testkit.Eventually(t, patience, func() error {
		if n := b.info(t).NumWaiting; n != 2 {
			return fmt.Errorf("%d requests wait, want 2", n)
		}
		return nil
	})
	b.publishKeyed(t, "a1", "a2") // each gets one
	var first *message.Message
	select {
	case first = <-msgs:
	case first = <-others:
	case <-time.After(patience):
		t.Fatal("no message came")
	}
	if first.UUID != "a1" {
		t.Fatalf("got %q first", first.UUID)
	}
	select {
	case m := <-msgs:
		t.Errorf("got %q while a1 is being handled", m.UUID)
	case m := <-others:
		t.Errorf("got %q while a1 is being handled", m.UUID)
	case <-time.After(time.Second):
	}
}

func TestOrder_window_that_is_full_of_waiting_messages(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2", "b1", "c1")
	sub := b.subscriber(t, byKey(new(testkit.Leases), func(o *subscribers.Order) { o.Window = 3 }))
	msgs := subscribe(t, sub)
	for _, m := range wantNext(t, msgs, "a1", "b1") {
		delivery(t, m).RetryIn(4 * time.Second)
		m.Nack()
	}
	testkit.Eventually(t, patience, unhealthy(sub, "all 3 messages in hand wait for their next try, and no more fit in"))
	if st := sub.Standing(); !st.Full || st.Due || st.Held != 3 {
		t.Errorf("standing is %+v", st)
	}
	wantNext(t, msgs, "a1", "b1")["a1"].Ack()
	wantNext(t, msgs, "a2", "c1")
	testkit.Eventually(t, patience, healthy(sub))
}

// What is in hand is bounded by its size, too; a message that is larger than the bound comes alone.
func TestOrder_window_has_a_size(t *testing.T) {
	b := setup(t)
	for i := range 4 {
		b.publishMsg(t, &nats.Msg{Subject: topic, Data: make([]byte, 2000), Header: nats.Header{"_watermill_message_uuid": {fmt.Sprint(i)}}})
	}
	sub := b.subscriber(t, byKey(new(testkit.Leases), func(o *subscribers.Order) { o.WindowBytes = 1000 }), func(c *subscribers.Config) { c.MaxInFlight = 1 })
	msgs := subscribe(t, sub)
	for i := range 4 {
		m := next(t, msgs)
		if m.UUID != fmt.Sprint(i) {
			t.Errorf("got %q, want %d", m.UUID, i)
		}
		m.Ack()
	}
	b.left(t, 0)
}

// The settings change in both directions on the consumer that is there.
func TestOrder_of_an_existing_consumer(t *testing.T) {
	b := setup(t)
	_, err := b.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1, MaxAckPending: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	created := b.info(t).Created
	b.publishKeyed(t, "a1", "b1", "a2")
	for i, edits := range [][]func(*subscribers.Config){{byKey(new(testkit.Leases))}, nil} {
		sub := b.subscriber(t, edits...)
		wantNext(t, subscribe(t, sub), [][]string{{"a1", "b1"}, {"a1", "b1", "a2"}}[i]...)
		info := b.info(t)
		if want := []int{256, -1}[i]; info.Config.MaxAckPending != want || !info.Created.Equal(created) {
			t.Errorf("max ack pending is %d, want %d; made %v", info.Config.MaxAckPending, want, info.Created)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

// out takes n messages as another process would.
func (b *bundle) out(t *testing.T, n int) []jetstream.Msg {
	t.Helper()
	cons, err := b.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: -1, MaxAckPending: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	var msgs []jetstream.Msg
	for m := range batch.Messages() {
		msgs = append(msgs, m)
	}
	if len(msgs) != n {
		t.Fatalf("got %d messages, want %d", len(msgs), n)
	}
	return msgs
}

func minute(c *subscribers.Config) { c.AckWait = time.Minute }

// What another process settles does not come again, and is not waited for.
func TestOrder_what_others_settle_is_not_waited_for(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2", "a3")
	theirs := b.out(t, 2)
	sub := b.subscriber(t, byKey(new(testkit.Leases)), minute)
	msgs := subscribe(t, sub)
	testkit.Eventually(t, patience, unhealthy(sub, "waiting for 2 messages"))
	if err := errors.Join(theirs[1].Nak(), theirs[0].DoubleAck(t.Context())); err != nil {
		t.Fatal(err)
	}
	if m := next(t, msgs); m.UUID != "a2" {
		t.Errorf("got %q, want a2", m.UUID)
	}
}

// As many messages in hand as the server counts need not be the same: one that another process has settled after all
// hides one that is still out.
func TestOrder_a_count_that_is_right_is_not_enough(t *testing.T) {
	b := setup(t)
	b.publishKeyed(t, "a1", "a2")
	theirs := b.out(t, 2)
	sub := b.subscriber(t, byKey(new(testkit.Leases)), minute)
	msgs := subscribe(t, sub)
	testkit.Eventually(t, patience, unhealthy(sub, "waiting for 2 messages"))
	if err := theirs[1].Nak(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		if st := sub.Standing(); st.Held != 1 {
			return fmt.Errorf("standing is %+v", st)
		}
		return nil
	})
	if _, err := b.js.Conn().Request(theirs[1].Reply(), []byte("+ACK"), patience); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, unhealthy(sub, "waiting for 1 messages"))
	none(t, msgs, 500*time.Millisecond)
	if err := theirs[0].Nak(); err != nil {
		t.Fatal(err)
	}
	if m := next(t, msgs); m.UUID != "a1" {
		t.Errorf("got %q, want a1", m.UUID)
	}
}
