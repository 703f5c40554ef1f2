package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// slowHandler is how long a slow handler takes.
const slowHandler = 10 * time.Millisecond

// atBest is the rate of so many slow handlers at the same time.
func atBest(handlers int) float64 { return float64(handlers) / slowHandler.Seconds() }

// consumeSlow has a handler that takes its time, and so many of them at once: never more, and all of them.
func consumeSlow(atOnce int) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		store, err := st.millbridge(ctx)
		if err != nil {
			return result{}, err
		}
		n := max(int(2*st.opts.window.Seconds()*atBest(atOnce)), 5*atOnce)
		if err := st.fill(ctx, n); err != nil {
			return result{}, err
		}
		t := newTracker(n)
		var running, most atomic.Int64
		h := func(ctx context.Context, e schema.Envelope) error {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			if err := pause(ctx, slowHandler); err != nil {
				return err
			}
			t.saw(e.Payload)
			return nil
		}
		m := st.meter()
		bridge, err := st.startBridge(ctx, router.Config{Store: store, NoForward: true},
			handlers.Policy{Concurrency: atOnce, Mode: handlers.ModeNone}, h)
		if err != nil {
			return result{}, err
		}
		err = t.await(ctx)
		r = m.stop(n)
		settled := checkSettled(ctx, st.js, jobStream, jobSubject)
		err = errors.Join(err, settled, bridge.close(), t.fault(false))
		if got := int(most.Load()); got != atOnce {
			err = errors.Join(err, fmt.Errorf("%d handlers ran at the same time, want %d", got, atOnce))
		}
		return r, err
	}
}

// consumeBesideBackoff handles messages while 2,000 others wait for their next attempt.
func consumeBesideBackoff(ctx context.Context, st *stage) (r result, err error) {
	const most = 2000
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	n := st.opts.messages
	waiting := min(most, n)
	failing, err := wires(n + waiting)
	if err != nil {
		return result{}, err
	}
	if err := st.publishAsync(ctx, failing[n:]); err != nil {
		return result{}, err
	}
	// One bridge fails them all, and another one finds them so.
	policy := handlers.Policy{Concurrency: concurrency, Mode: handlers.ModeNone}
	var failed atomic.Int64
	all := make(chan struct{})
	bridge, err := st.startBridge(ctx, router.Config{Store: store, NoForward: true}, policy, func(context.Context, schema.Envelope) error {
		if failed.Add(1) == int64(waiting) {
			close(all)
		}
		return handlers.RetryAfter(errors.New("not now"), time.Hour)
	})
	if err != nil {
		return result{}, err
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		err = fmt.Errorf("%d of %d messages have failed", failed.Load(), waiting)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err := errors.Join(err, bridge.close()); err != nil {
		return result{}, err
	}
	if err := st.fill(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	m := st.meter()
	bridge, err = st.startBridge(ctx, router.Config{Store: store, NoForward: true}, policy, handle(t.saw))
	if err != nil {
		return result{}, err
	}
	err = t.await(ctx)
	r = m.stop(n)
	left := checkLeft(ctx, st.js, jobStream, jobSubject, waiting)
	return r, errors.Join(err, left, bridge.close(), t.fault(false))
}
