package cases

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// polls makes the forwarder look at an idle outbox every so often and not in between.
func polls(every time.Duration) func(*router.Config) {
	return func(c *router.Config) { c.Forwarder = jetstream.ForwarderConfig{PollMin: every, PollMax: every} }
}

// arrives waits until r has the messages, for so long.
func arrives(t *testing.T, r *recorder, limit time.Duration, envs ...schema.Envelope) {
	t.Helper()
	began := time.Now()
	testkit.Eventually(t, 2*time.Minute, func() error {
		got := make(map[string]int)
		for _, id := range r.ids() {
			got[id]++
		}
		for _, e := range envs {
			if got[e.ID] != 1 {
				return fmt.Errorf("%s arrived %d times", e.ID, got[e.ID])
			}
		}
		return nil
	})
	if d := time.Since(began); d > limit {
		t.Errorf("it took %v, want at most %v", d, limit)
	}
}

// forwarding waits until all shards of b are at work.
func forwarding(t *testing.T, b *router.Bridge) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() error {
		shards := b.Health(t.Context()).Shards
		for _, s := range shards {
			if s.State != jetstream.ShardRunning {
				return fmt.Errorf("shard %s/%d is %s: %s", s.Stream, s.Shard, s.State, s.Error)
			}
		}
		if len(shards) == 0 {
			return errors.New("there are no shards yet")
		}
		return nil
	})
}

// Nobody tells the forwarder: it looks by itself, once in each interval.
func TestC29_no_wake_up(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := &recorder{}
		b := w.openWith(t, polls(2*time.Second), handlers.Target{Name: "a", Handler: r})
		run(t, b)
		forwarding(t, b)
		for range 2 {
			job := schema.NewJob("a", "do", nil)
			w.publish(t, job)
			arrives(t, r, 8*time.Second, job) // an interval, and what a busy machine adds
		}
	})
}

// The wake-up is sent while the connection that would bring it is being made anew, and nothing is sent afterwards. With
// an interval of an hour only the look after the reconnect finds the row.
func TestC29_wake_up_while_the_connection_is_away(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := &recorder{}
		b := w.openWith(t, polls(time.Hour), handlers.Target{Name: "a", Handler: r})
		run(t, b)
		forwarding(t, b)
		for range 3 {
			w.nats.Stop()
			testkit.Eventually(t, 2*time.Minute, func() error {
				if w.conn.IsConnected() {
					return errors.New("still connected")
				}
				return nil
			})
			job := schema.NewJob("a", "do", nil)
			w.publish(t, job)
			w.nats.Restart()
			arrives(t, r, 10*time.Second, job)
		}
	})
}

// With wake-ups on, the size of a message does not matter: what wakes the forwarder up is empty. Nothing else makes it
// look within the hour.
func TestC29_wake_up_for_a_large_message(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const size = 1 << 20
		w.nats = testkit.NATS(t, func(o *server.Options) { o.MaxPayload = 4 * size })
		w.conn = w.nats.Conn(t)
		w.setMaxPayload(t, size)
		r := &recorder{}
		b := w.openWith(t, polls(time.Hour), handlers.Target{Name: "a", Handler: r})
		run(t, b)
		forwarding(t, b)
		other := w.nats.Conn(t) // of a process that only publishes
		wakeUps, err := other.SubscribeSync(jetstream.NudgeSubject(schema.Subjects{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{8_001, size} {
			large := schema.NewJob("a", "do", bytes.Repeat([]byte("x"), n))
			w.publish(t, large)
			if err := other.Publish(jetstream.NudgeSubject(schema.Subjects{}), nil); err != nil {
				t.Fatal(err)
			}
			arrives(t, r, 10*time.Second, large)
			m, err := wakeUps.NextMsg(10 * time.Second)
			if err != nil || len(m.Data) != 0 || len(m.Header) != 0 {
				t.Errorf("the wake-up is %+v, %v; want an empty one", m, err)
			}
		}
		if n, _, err := wakeUps.Pending(); err != nil || n != 0 {
			t.Errorf("%d more wake-ups, %v", n, err)
		}
	})
}
