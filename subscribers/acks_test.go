package subscribers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/testkit"
)

// consumer hears acks as the server does, and confirms them when it is told to.
type consumer struct {
	*testing.T
	nc    *nats.Conn
	heard chan *nats.Msg
}

func startConsumer(t *testing.T, nc *nats.Conn) *consumer {
	t.Helper()
	c := &consumer{T: t, nc: nc, heard: make(chan *nats.Msg, 100)}
	if _, err := nc.ChanSubscribe("ack.>", c.heard); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

// hears waits for n acks and returns the inboxes that are to be told.
func (c *consumer) hears(n int) (replies []string) {
	c.Helper()
	for i := range n {
		select {
		case m := <-c.heard:
			if want := fmt.Sprint("ack.", i); m.Subject != want || string(m.Data) != "+ACK" {
				c.Errorf("heard %q on %s, want an ack on %s", m.Data, m.Subject, want)
			}
			if m.Reply != "" {
				replies = append(replies, m.Reply)
			}
		case <-time.After(time.Minute):
			c.Fatalf("%d acks were heard, want %d", i, n)
		}
	}
	return replies
}

func (c *consumer) confirm(reply string) {
	c.Helper()
	if err := c.nc.Publish(reply, []byte("+OK")); err != nil {
		c.Fatal(err)
	}
}

// askTogether asks for n acks that go together.
func askTogether(a *acks, n int) []waiting {
	a.mu.Lock()
	a.sent = time.Now().Add(time.Hour) // so that the first waits
	a.mu.Unlock()
	all := make([]waiting, n)
	for i := range all {
		all[i] = make(waiting, 1)
		a.ask(fmt.Sprint("ack.", i), all[i])
	}
	a.send()
	return all
}

func answers(t *testing.T, all []waiting, want error) {
	t.Helper()
	for i, w := range all {
		select {
		case err := <-w:
			if !errors.Is(err, want) {
				t.Errorf("ack %d: %v, want %v", i, err, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("ack %d got no answer", i)
		}
	}
}

func startAcks(t *testing.T, confirm bool) (*acks, *consumer) {
	t.Helper()
	t.Parallel()
	server := testkit.NATS(t)
	a := newAcks(t.Context(), server.Conn(t, nats.ReconnectWait(time.Millisecond)), confirm)
	if err := a.listen(); err != nil {
		t.Fatal(err)
	}
	return a, startConsumer(t, server.Conn(t))
}

func TestAcks_the_last_is_confirmed_for_all(t *testing.T) {
	a, c := startAcks(t, true)
	all := askTogether(a, 3)
	replies := c.hears(3)
	if len(replies) != 1 {
		t.Fatalf("%d of 3 acks that go together ask for an answer, want the last", len(replies))
	}
	select {
	case <-all[0]:
		t.Error("an ack counts before it is confirmed")
	default:
	}
	c.confirm(replies[0])
	answers(t, all, nil)
}

func TestAcks_nobody_is_asked_for_plain_ones(t *testing.T) {
	a, c := startAcks(t, false)
	answers(t, askTogether(a, 3), nil)
	if replies := c.hears(3); len(replies) != 0 {
		t.Errorf("%d ask for an answer", len(replies))
	}
}

// The server may have got the last over a new connection and the others not at all.
func TestAcks_a_confirmation_says_nothing_of_another_connection(t *testing.T) {
	a, c := startAcks(t, true)
	for n, want := range map[int]error{3: errUnconfirmed, 1: nil} {
		all := askTogether(a, n)
		replies := c.hears(n)
		before := a.nc.Stats().Reconnects
		if err := a.nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func() error {
			if a.nc.Stats().Reconnects == before || !a.nc.IsConnected() {
				return errors.New("not connected again")
			}
			return a.nc.FlushTimeout(time.Second)
		})
		c.confirm(replies[0])
		answers(t, all, want)
	}
}

func TestAcks_that_nobody_confirms(t *testing.T) {
	a, c := startAcks(t, true)
	all := askTogether(a, 2)
	c.hears(2)
	a.expire()
	select {
	case err := <-all[0]:
		t.Errorf("given up at once: %v", err)
	default:
	}
	a.expire()
	answers(t, all, errUnconfirmed)
}

func TestAcks_at_the_end_of_life(t *testing.T) {
	a, c := startAcks(t, true)
	over := errors.New("over")
	life, end := context.WithCancelCause(t.Context())
	a.life = life
	sent := askTogether(a, 2)
	c.hears(2)
	unsent := make(waiting, 1)
	a.mu.Lock()
	a.sent = time.Now().Add(time.Hour)
	a.mu.Unlock()
	a.ask("ack.9", unsent)
	end(over)
	a.giveUp()
	answers(t, append(sent, unsent), over)
	late := make(waiting, 1)
	a.ask("ack.9", late)
	answers(t, []waiting{late}, over)
}
