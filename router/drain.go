package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/publishers/jetstream"
)

// A Tally says what a [Bridge.Drain] did.
type Tally struct {
	Forwarder jetstream.Tally `json:"forwarder"`
	Counts
	// Disabled are the targets and subscriptions whose messages wait until somebody enables them.
	Disabled []string `json:"disabled,omitempty"`
}

const (
	quietPoll = 50 * time.Millisecond
	quietFor  = 4 // polls in a row that must find nothing to do and nothing done
)

// Drain forwards until the outbox is empty and handles until no message is due, and stops. Messages that wait for their
// next attempt or for their time stay. It returns what it did, also with an error.
func (b *Bridge) Drain(ctx context.Context) (Tally, error) {
	s, ctx, leave, err := b.enter(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("drain bridge: %w", err)
	}
	defer leave()
	if err := b.checkDurability(ctx); err != nil {
		return Tally{}, fmt.Errorf("drain bridge: %w", err)
	}
	before := b.counts()
	if err := s.start(ctx); err != nil {
		return Tally{}, fmt.Errorf("drain bridge: %w", err)
	}
	var tally Tally
	err = b.drain(ctx, s, &tally)
	tally.Disabled = b.disabled()
	err = errors.Join(err, s.stop())
	tally.Counts = b.counts().minus(before)
	if err != nil {
		return tally, fmt.Errorf("drain bridge: %w", err)
	}
	return tally, nil
}

// drain alternates between forwarding and handling until neither finds anything: handlers may publish.
func (b *Bridge) drain(ctx context.Context, s *session, tally *Tally) error {
	for {
		sent := 0
		if b.forwarder != nil {
			t, err := b.forwarder.Drain(ctx)
			tally.addForwarded(t)
			if err != nil {
				return err
			}
			sent = t.Sent
		}
		handled := b.entered()
		if err := s.awaitQuiet(ctx); err != nil {
			return err
		}
		if sent == 0 && b.entered() == handled {
			return nil
		}
	}
}

func (t *Tally) addForwarded(u jetstream.Tally) {
	t.Forwarder.Claimed += u.Claimed
	t.Forwarder.Sent += u.Sent
	t.Forwarder.Retried += u.Retried
	t.Forwarder.Parked += u.Parked
	t.Forwarder.Lost += u.Lost
}

// awaitQuiet returns when no consumer has had a message that is due, and no handler has run, for some time.
func (s *session) awaitQuiet(ctx context.Context) error {
	tick := time.NewTicker(quietPoll)
	defer tick.Stop()
	last, quiet := int64(-1), 0
	for {
		select {
		case <-tick.C:
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		seen, idle, err := s.look(ctx)
		if err != nil {
			return err
		}
		if !idle || seen != last {
			last, quiet = seen, 0
			continue
		}
		if quiet++; quiet == quietFor {
			return nil
		}
	}
}

// look counts what was ever handed out and tells whether nothing is due at this moment: the server has a pull of ours
// that it could answer, and nothing to answer it with.
func (s *session) look(ctx context.Context) (seen int64, idle bool, err error) {
	idle = true
	for _, f := range s.all() {
		consumer, err := s.b.js.Consumer(ctx, s.b.cfg.Subjects.StreamName(f.stream), f.durable)
		if err != nil {
			return 0, false, fmt.Errorf("look at the consumer of %s: %w", f, err)
		}
		info := consumer.CachedInfo()
		waiting := info.NumWaiting > 0 && info.NumPending == 0
		if f.chain.policy.Ordered { // messages that wait for their next attempt are in hand, and so are those behind them
			st := f.sub.Standing()
			waiting = !st.Due && (st.Full || info.NumPending == 0 && (st.Elsewhere || info.NumWaiting > 0))
		}
		_, entered, running, _ := f.chain.stats.read()
		if _, held := f.chain.breaker.state(); held > 0 && held == running { // all that is in hand waits for the circuit
			waiting, running = true, 0
		}
		if !waiting || running > 0 {
			idle = false
		}
		seen += int64(info.Delivered.Consumer) + entered
	}
	return seen, idle, nil
}

func (b *Bridge) counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum Counts
	for _, c := range b.chains {
		counts, _, _, _ := c.stats.read()
		sum = sum.plus(counts)
	}
	return sum
}

func (b *Bridge) disabled() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.chains {
		if circuit, _ := c.breaker.state(); circuit.Disabled {
			names = append(names, c.name)
		}
	}
	return names
}

func (b *Bridge) entered() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum int64
	for _, c := range b.chains {
		_, entered, _, _ := c.stats.read()
		sum += entered
	}
	return sum
}
