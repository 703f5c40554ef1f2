package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// overlaps counts runs and notices two of one message at the same time.
type overlaps struct {
	calls
	mu      sync.Mutex
	running map[string]int
	most    int
}

func (o *overlaps) run(env schema.Envelope, work func()) {
	o.add(env)
	o.mu.Lock()
	if o.running == nil {
		o.running = make(map[string]int)
	}
	o.running[env.ID]++
	o.most = max(o.most, o.running[env.ID])
	o.mu.Unlock()
	work()
	o.mu.Lock()
	o.running[env.ID]--
	o.mu.Unlock()
}

func (o *overlaps) check(t *testing.T, messages int) {
	t.Helper()
	o.mu.Lock()
	most := o.most
	o.mu.Unlock()
	if most != 1 {
		t.Errorf("%d runs of one message at the same time", most)
	}
	runs := o.byID()
	if len(runs) != messages {
		t.Errorf("%d messages were handled, want %d", len(runs), messages)
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("message %s was started %d times", id, n)
		}
	}
}

// Two replicas, a queue, and handlers that take nearly the ack wait: every message is started once.
func TestC11_messages_that_wait_for_their_turn(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const ackWait = time.Second
		var seen overlaps
		policy := quick(3)
		policy.Concurrency = 2
		one := b.open(func(c *router.Config) { c.AckWait = ackWait })
		two := b.open(noForward, func(c *router.Config) { c.AckWait, c.Conn = ackWait, b.nats.Conn(t) })
		for _, bridge := range []*router.Bridge{one, two} {
			b.target(bridge, "slow", policy, func(_ context.Context, env schema.Envelope) error {
				seen.run(env, func() { wait(ackWait * 4 / 5) })
				return nil
			})
		}
		var jobs []schema.Envelope
		for range 10 {
			jobs = append(jobs, schema.NewJob("slow", "x", nil))
		}
		b.publish(one, jobs...)
		b.run(one)
		b.run(two)
		b.eventually(seen.reaches(10))
		b.awaitNoJobs()
		wait(2 * ackWait) // whatever was to come again would have
		seen.check(t, 10)
	})
}

func wait(d time.Duration) { <-time.After(d) }

// A handler that takes several times the ack wait and the lease, with a restart of the server in between.
func TestC33_handler_slower_than_the_lease(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				const deadline = 500 * time.Millisecond
				var seen overlaps
				policy := quick(3)
				policy.Mode = mode
				short := func(c *router.Config) { c.AckWait, c.Lease = deadline, deadline }
				one := b.open(short)
				two := b.open(noForward, short, func(c *router.Config) { c.Conn = b.nats.Conn(t) })
				for _, bridge := range []*router.Bridge{one, two} {
					b.target(bridge, "slow", policy, func(_ context.Context, env schema.Envelope) error {
						seen.run(env, func() {
							wait(4 * deadline)
							if env.Name == "restart" {
								b.restartNATS()
							}
							wait(deadline)
						})
						return nil
					})
					b.run(bridge)
				}
				b.publish(one, schema.NewJob("slow", "x", nil), schema.NewJob("slow", "restart", nil))
				b.eventually(seen.reaches(2))
				b.awaitNoJobs()
				wait(4 * deadline)
				seen.check(t, 2)
			})
		})
	}
}

// A run whose lease has gone: its context ends, and it neither acks nor counts as the one that handled the key.
func TestC11_run_whose_lease_has_gone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open(func(c *router.Config) { c.Lease = 600 * time.Millisecond })
		var seen calls
		cause := make(chan error, 1)
		job := schema.NewJob("slow", "x", nil)
		b.target(bridge, "slow", quick(1), func(ctx context.Context, env schema.Envelope) error {
			if seen.add(env) == 1 {
				<-ctx.Done()
				cause <- context.Cause(ctx)
			}
			return nil // claims success all the same
		})
		b.run(bridge)
		b.publish(bridge, job)
		b.eventually(seen.reaches(1))

		// Somebody else takes the key over, as after a pause of this process.
		recs, err := b.store.InboxByMessage(t.Context(), job.ID)
		if err != nil || len(recs) != 1 || recs[0].LeaseOwner == "" {
			t.Fatalf("the inbox has %+v, error %v", recs, err)
		}
		env := seen.all()[0]
		other := schema.Run{
			Key: schema.InboxKeyOf("slow", env), Owner: schema.NewID(), MessageID: env.ID, BodyHash: env.BodyHash(), Lease: time.Minute,
		}
		b.takeOver(other.Owner) // at one stroke: between two the lease would be renewed
		select {
		case err := <-cause:
			if schema.KindOf(err) != schema.NotMine {
				t.Errorf("the context ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the run goes on without its lease")
		}
		if n := b.waiting(schema.Jobs, "jobs.>"); n != 1 {
			t.Errorf("the message was acked")
		}
		// The other one handles it; then the message comes again and is acked unhandled.
		if err := b.store.Done(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		b.awaitNoJobs()
		if seen.count() != 1 || len(b.letters()) != 0 {
			t.Errorf("%d calls, %d letters", seen.count(), len(b.letters()))
		}
	})
}

// takeOver gives all keys to another owner, as if their leases had ended.
func (b *bench) takeOver(owner string) {
	b.Helper()
	if b.sqlite != nil {
		b.exec("UPDATE millbridge_inbox SET lease_owner = '" + owner + "', lease_until = (unixepoch() + 60) * 1000000000")
		return
	}
	b.exec("UPDATE millbridge.inbox SET owner = '" + owner + "', lease_until = clock_timestamp() + interval '1 minute'")
}

// Another consumer that takes the same jobs is refused at start, by name.
func TestC16_overlapping_consumers(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	_, err := b.js.CreateConsumer(t.Context(), "MB_JOBS", jetstream.ConsumerConfig{
		Durable: "catch-all", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "mb.jobs.>",
	})
	if err != nil {
		t.Fatal(err)
	}
	b.target(bridge, "a", quick(1), func(context.Context, schema.Envelope) error { return nil })
	err = bridge.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"mb.jobs.a.>"`) || !strings.Contains(err.Error(), "catch-all") {
		t.Errorf("run returned %v", err)
	}
	noop := handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil })
	if err := bridge.Target(handlers.Target{Name: "a.b", Handler: noop}); err == nil || !strings.Contains(err.Error(), `"a.b"`) {
		t.Errorf("a target below another: %v", err)
	}
	err = bridge.Subscribe(handlers.Subscription{Name: "s", Events: []string{"order.>", "order.placed"}, Handler: noop})
	if err == nil || !strings.Contains(err.Error(), `"order.>" and "order.placed" overlap`) {
		t.Errorf("a subscription that gets an event twice: %v", err)
	}
}

// Replicas that come and go share a target's jobs: a hundred jobs are a hundred starts.
func TestC16_rolling_deploy(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var seen overlaps
		handle := func(_ context.Context, env schema.Envelope) error {
			seen.run(env, func() { wait(10 * time.Millisecond) })
			return nil
		}
		patient := func(c *router.Config) { c.AckWait = patience } // nothing comes again because the machine stands still
		first := b.open(patient)
		var jobs []schema.Envelope
		for range 100 {
			jobs = append(jobs, schema.NewJob("a", "x", nil))
		}
		b.publish(first, jobs...)
		b.target(first, "a", quick(3), handle)
		b.run(first)
		b.eventually(seen.reaches(10))
		for range 3 {
			replica := b.open(patient, noForward, func(c *router.Config) { c.Conn = b.nats.Conn(t) })
			b.target(replica, "a", quick(3), handle)
			stop := b.run(replica)
			n := min(seen.count()+15, 100)
			b.eventually(seen.reaches(n))
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		b.eventually(seen.reaches(100))
		b.awaitNoJobs()
		seen.check(t, 100)
	})
}

// Jobs of a target that this deployment does not know wait for one that does, and are named meanwhile.
func TestC34_unknown_target(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var known, fresh calls
		old := b.open()
		b.target(old, "known", quick(3), func(_ context.Context, env schema.Envelope) error { known.add(env); return nil })
		b.run(old)
		b.publish(old, schema.NewJob("fresh", "x", nil), schema.NewJob("known", "x", nil), schema.NewJob("fresh", "y", nil))
		b.eventually(known.reaches(1))
		b.eventually(func() error {
			h := old.Health(t.Context())
			if h.Unserved["fresh"] != 2 || !strings.Contains(strings.Join(h.Problems, "\n"), `2 jobs wait for target "fresh"`) {
				return fmt.Errorf("health does not name the target: %+v", h)
			}
			return nil
		})
		if n := b.waiting(schema.Jobs, "jobs.fresh.>"); n != 2 || len(b.letters()) != 0 {
			t.Errorf("%d jobs wait, %d letters", n, len(b.letters()))
		}
		deployed := b.open(noForward, func(c *router.Config) { c.Conn = b.nats.Conn(t) })
		b.target(deployed, "fresh", quick(3), func(_ context.Context, env schema.Envelope) error { fresh.add(env); return nil })
		b.run(deployed)
		b.eventually(fresh.reaches(2))
		b.awaitNoJobs()
		b.eventually(func() error {
			if h := old.Health(t.Context()); len(h.Unserved) != 0 {
				return fmt.Errorf("still unserved: %v", h.Unserved)
			}
			return nil
		})
	})
}

// The name of a subscription serves no jobs: those that are sent to it wait, and are named.
func TestC34_target_that_is_a_subscription(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var events calls
		bridge := b.open()
		if err := bridge.Subscribe(handlers.Subscription{
			Name: "audit", Events: []string{"order.>"}, Policy: quick(3),
			Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error { events.add(env); return nil }),
		}); err != nil {
			t.Fatal(err)
		}
		b.run(bridge)
		b.publish(bridge, schema.NewEvent("order.placed", nil), schema.NewJob("audit", "x", nil))
		b.eventually(events.reaches(1))
		b.eventually(func() error {
			h := bridge.Health(t.Context())
			if h.Unserved["audit"] != 1 || !strings.Contains(strings.Join(h.Problems, "\n"), `1 jobs wait for target "audit"`) {
				return fmt.Errorf("health does not name the target: %+v", h)
			}
			return nil
		})
	})
}
