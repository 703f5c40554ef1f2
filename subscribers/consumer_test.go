package subscribers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

func spec(name string, filters ...string) func(*subscribers.Config) {
	return func(c *subscribers.Config) {
		c.Consumer = func(string) subscribers.ConsumerSpec {
			return subscribers.ConsumerSpec{Durable: name, Filters: filters}
		}
	}
}

func TestConsumerSettings(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			b := setup(t)
			subscribe(t, b.subscriber(t, func(c *subscribers.Config) {
				if c.AckWait = 0; ordered {
					c.Order = inOneLine(new(testkit.Leases))
				}
			}))
			pending := -1
			if ordered {
				pending = 256
			}
			c := b.info(t).Config
			if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 30*time.Second || c.MaxDeliver != -1 || c.MaxAckPending != pending ||
				c.InactiveThreshold != 0 || len(c.BackOff) != 0 || c.Durable != durable || c.FilterSubject+fmt.Sprint(c.FilterSubjects) != "["+topic+"]" && c.FilterSubject != topic {
				t.Errorf("the consumer is %+v", c)
			}
		})
	}
}

func TestConsumerThatExists(t *testing.T) {
	good := func() jetstream.ConsumerConfig {
		return jetstream.ConsumerConfig{
			Durable: durable, FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1, MaxAckPending: -1,
		}
	}
	tests := map[string]struct {
		retention jetstream.RetentionPolicy
		edit      func(*jetstream.ConsumerConfig)
		refused   string // part of the error; empty when the consumer is used
	}{
		"same":                  {edit: func(*jetstream.ConsumerConfig) {}},
		"began elsewhere":       {edit: func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy }},
		"other ack wait":        {edit: func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute }},
		"delivery limit":        {edit: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }},
		"back-off":              {edit: func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second} }},
		"few pending":           {edit: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2 }},
		"goes when idle":        {edit: func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Minute }},
		"small requests":        {edit: func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }},
		"other filter":          {edit: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "orders.paid" }},
		"other filter in queue": {jetstream.WorkQueuePolicy, func(c *jetstream.ConsumerConfig) { c.FilterSubject = "orders.paid" }, "filter is [orders.paid], want [orders.placed]"},
		"acks all":              {edit: func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, refused: "ack policy is"},
		"no acks":               {edit: func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy }, refused: "ack policy is"},
		"slow replay":           {edit: func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy }, refused: "replay policy is"},
		"headers only":          {edit: func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, refused: "headers only is true, want false"},
		"in memory":             {edit: func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true }, refused: "storage is memory"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
				t.Fatal(err)
			}
			b.stream(t, test.retention)
			c := good()
			test.edit(&c)
			before, err := b.js.CreateConsumer(t.Context(), "ORDERS", c)
			if err != nil {
				t.Fatal(err)
			}
			sub := b.subscriber(t)
			_, err = sub.Subscribe(t.Context(), topic)
			if test.refused != "" {
				wantErr(t, err, subscribers.ErrConsumer, test.refused, durable, "ORDERS")
				if schema.KindOf(err) != schema.Permanent {
					t.Errorf("the error is %v, want permanent", schema.KindOf(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			have := b.info(t)
			filters := append([]string{have.Config.FilterSubject}, have.Config.FilterSubjects...)
			if !have.Created.Equal(before.CachedInfo().Created) || have.Config.AckWait != 2*time.Second || have.Config.MaxDeliver != -1 ||
				have.Config.MaxAckPending != -1 || len(have.Config.BackOff) != 0 || have.Config.InactiveThreshold != 0 ||
				have.Config.MaxRequestBatch != 0 || !slices.Contains(filters, topic) {
				t.Errorf("the consumer is %+v", have.Config)
			}
		})
	}
}

func TestC16_OverlappingConsumersAreRefused(t *testing.T) {
	b := setup(t)
	subscribe(t, b.subscriber(t, spec("target-a", "orders.a.>")))
	for _, filter := range []string{"orders.a.b.>", "orders.>", "orders.*.x"} {
		_, err := b.subscriber(t, spec("other", filter)).Subscribe(t.Context(), topic)
		wantErr(t, err, subscribers.ErrConsumer, filter, "orders.a.>", "target-a")
	}
	subscribe(t, b.subscriber(t, spec("target-b", "orders.b.>"))) // disjoint
}

func TestC16_EveryJobIsHandledOnce(t *testing.T) {
	b := setup(t)
	const jobs = 100
	b.publish(t, jobs)
	var mu sync.Mutex
	starts := make(map[string]int)
	work := func(sub *subscribers.Subscriber) {
		msgs := subscribe(t, sub)
		go func() {
			for m := range msgs {
				mu.Lock()
				starts[m.UUID]++
				mu.Unlock()
				m.Ack()
			}
		}()
	}
	old := b.subscriber(t)
	work(old)
	work(b.subscriber(t)) // the next release joins, then the old one leaves
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	b.left(t, 0)
	mu.Lock()
	defer mu.Unlock()
	if len(starts) != jobs {
		t.Errorf("%d jobs were started, want %d", len(starts), jobs)
	}
	for id, n := range starts {
		if n != 1 {
			t.Errorf("job %s was started %d times", id, n)
		}
	}
}

func TestStart(t *testing.T) {
	b := setup(t)
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	b.stream(t, jetstream.LimitsPolicy)
	b.publish(t, 1)
	cut := time.Now()
	b.publish(t, 1)
	for name, test := range map[string]struct {
		start subscribers.Start
		first uint64
	}{
		"oldest": {first: 1}, "at": {subscribers.Start{At: cut}, 2}, "new": {subscribers.Start{New: true}, 3},
	} {
		sub := b.subscriber(t, func(c *subscribers.Config) {
			c.MaxInFlight = 1
			c.Consumer = func(topic string) subscribers.ConsumerSpec {
				return subscribers.ConsumerSpec{Durable: name, Filters: []string{topic}, Start: test.start}
			}
		})
		if err := sub.SubscribeInitialize(topic); err != nil {
			t.Fatal(err)
		}
		if name == "new" {
			b.publish(t, 1)
		}
		if d := delivery(t, next(t, subscribe(t, sub))); d.Sequence != test.first {
			t.Errorf("%s begins at %d, want %d", name, d.Sequence, test.first)
		}
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	for text, cfg := range map[string]subscribers.Config{
		"stream: a name is needed":               {},
		"max_in_flight is -1":                    {Stream: "S", MaxInFlight: -1},
		"order: there is no key":                 {Stream: "S", Order: &subscribers.Order{}},
		"order: there is no lease":               {Stream: "S", Order: &subscribers.Order{}},
		"the window is -1 messages":              {Stream: "S", Order: &subscribers.Order{Window: -1}},
		"order: ttl is 1ms, must be at least":    {Stream: "S", Order: &subscribers.Order{TTL: time.Millisecond}},
		"ack_wait is 1ms, must be at least":      {Stream: "S", AckWait: time.Millisecond},
		"heartbeat is 1ms, must be at least":     {Stream: "S", Heartbeat: time.Millisecond},
		"close_timeout is -1ns, must be at leas": {Stream: "S", CloseTimeout: -1},
	} {
		_, err := subscribers.New(js, cfg)
		wantPermanent(t, err, text)
	}
	for text, s := range map[string]subscribers.ConsumerSpec{
		`durable "a.b"`:             {Durable: "a.b", Filters: []string{"x"}},
		`durable ""`:                {Filters: []string{"x"}},
		"at least one subject":      {Durable: "d"},
		`filter "a..b" is not`:      {Durable: "d", Filters: []string{"a..b"}},
		`filter "a.>.b" is not`:     {Durable: "d", Filters: []string{"a.>.b"}},
		`"a.*" and "a.b" overlap`:   {Durable: "d", Filters: []string{"a.*", "a.b"}},
		"start: either new or at a": {Durable: "d", Filters: []string{"x"}, Start: subscribers.Start{New: true, At: time.Now()}},
	} {
		sub, err := subscribers.New(js, subscribers.Config{Stream: "S", Consumer: func(string) subscribers.ConsumerSpec { return s }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = sub.Subscribe(context.Background(), topic)
		wantPermanent(t, err, text)
		wantPermanent(t, sub.SubscribeInitialize(topic), text)
	}
}

func wantPermanent(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v of kind %v, want a permanent one with %q", err, schema.KindOf(err), text)
	}
}

// Settings that an operator changes while messages are consumed.
func TestConsumerThatIsChanged(t *testing.T) {
	change := func(t *testing.T, b *bundle, edit func(*jetstream.ConsumerConfig)) {
		t.Helper()
		c := b.info(t).Config
		edit(&c)
		if _, err := b.js.UpdateConsumer(t.Context(), "ORDERS", c); err != nil {
			t.Fatal(err)
		}
	}
	flows := func(t *testing.T, b *bundle, msgs <-chan *message.Message) {
		t.Helper()
		b.publish(t, 1)
		next(t, msgs).Ack()
		b.left(t, 0)
	}
	for name, edit := range map[string]func(*jetstream.ConsumerConfig){
		"delivery limit": func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 },
		"back-off":       func(c *jetstream.ConsumerConfig) { c.BackOff, c.MaxDeliver = []time.Duration{time.Hour}, 5 },
		"goes when idle": func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour },
		"small requests": func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 },
	} {
		t.Run(name, func(t *testing.T) { // put right
			b := setup(t)
			sub := b.subscriber(t)
			msgs := subscribe(t, sub)
			b.waiting(t) // what the start puts right is past
			change(t, b, edit)
			testkit.Eventually(t, patience, func() error {
				if c := b.info(t).Config; c.MaxDeliver != -1 || len(c.BackOff) > 0 || c.InactiveThreshold != 0 || c.MaxRequestBatch != 0 {
					return fmt.Errorf("the consumer is %+v", c)
				}
				return nil
			})
			flows(t, b, msgs)
			testkit.Eventually(t, patience, healthy(sub))
		})
	}
	t.Run("another version", func(t *testing.T) { // left alone, and said
		b := setup(t)
		sub := b.subscriber(t)
		msgs := subscribe(t, sub)
		b.waiting(t) // what the start puts right is past
		change(t, b, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute })
		testkit.Eventually(t, patience, unhealthy(sub, "another version of this program: the consumer cannot be used: ack wait is 1m0s"))
		flows(t, b, msgs)
		if got := b.info(t).Config.AckWait; got != time.Minute {
			t.Errorf("ack wait is %v: two versions would undo what the other does", got)
		}
		change(t, b, func(c *jetstream.ConsumerConfig) { c.AckWait = 2 * time.Second })
		testkit.Eventually(t, patience, healthy(sub))
	})
	t.Run("another filter", func(t *testing.T) { // it would hand out messages of others
		b := setup(t)
		sub := b.subscriber(t)
		msgs := subscribe(t, sub)
		b.waiting(t) // what the start puts right is past
		change(t, b, func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = "orders.paid", nil })
		testkit.Eventually(t, patience, unhealthy(sub, "filter is [orders.paid], want [orders.placed]"))
		change(t, b, func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = topic, nil })
		testkit.Eventually(t, patience, healthy(sub))
		flows(t, b, msgs)
	})
	t.Run("paused", func(t *testing.T) {
		b := setup(t)
		sub := b.subscriber(t)
		msgs := subscribe(t, sub)
		b.waiting(t) // what the start puts right is past
		until := time.Now().Add(time.Hour)
		if _, err := b.js.PauseConsumer(t.Context(), "ORDERS", durable, until); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, unhealthy(sub, "the consumer is paused until "+until.UTC().Format(time.RFC3339)))
		if _, err := b.js.ResumeConsumer(t.Context(), "ORDERS", durable); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, healthy(sub))
		flows(t, b, msgs)
	})
}
