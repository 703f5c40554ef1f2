package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
)

// A load is how the writers of a scenario commit, and how long it takes until all is handled.
type load func(ctx context.Context, st *stage, tx transaction, t *tracker) (result, error)

// asFast lets 16 connections commit as fast as they can. The rate counts the time until the last message is handled.
func asFast(perTx int) load {
	return func(ctx context.Context, st *stage, tx transaction, t *tracker) (r result, err error) {
		err = st.withWriters(ctx, conns, func(all []*writer) error {
			m := st.meter()
			n, err := write(ctx, all, 0, perTx, st.opts.window, tx, t)
			if err != nil {
				return err
			}
			t.expect(n)
			err = t.await(ctx)
			r = m.stop(n)
			return err
		})
		r.Latency = t.latency(0)
		return r, err
	}
}

// steadyWindows is how long a fixed rate goes on. The times of the first window do not count: connections, plans and
// consumers become warm in it.
const steadyWindows = 4

// steady lets some connections commit at a fixed rate. The rate is what they reached. Without a tracker nobody handles.
func steady(perSecond int) load {
	return func(ctx context.Context, st *stage, tx transaction, t *tracker) (r result, err error) {
		writers := min(conns, max(4, perSecond/100))
		err = st.withWriters(ctx, writers, func(all []*writer) error {
			m := st.meter()
			n, err := paced(ctx, all, perSecond, steadyWindows*st.opts.window, tx, t)
			if err != nil {
				return err
			}
			if r = m.stop(n); t == nil {
				return nil
			}
			t.expect(n)
			return t.await(ctx)
		})
		if t != nil {
			r.Latency = t.latency(r.Messages / steadyWindows)
		}
		return r, err
	}
}

// tenEach is behind the names of those whose transactions have ten messages and not one.
const tenEach = ", 10 messages a transaction"

func endToEndScenario() scenario {
	var all []contender
	bases := make(map[string]string)
	for _, perTx := range []int{1, 10} {
		named := func(name string) string {
			if perTx == 1 {
				return name
			}
			return name + tenEach
		}
		all = append(all,
			contender{named("river, tuned"), throughRiver(riverTuned, asFast(perTx))},
			contender{named("river, defaults"), throughRiver(riverDefault, asFast(perTx))},
			contender{named("stock, PollInterval 10 ms, no idempotency"), throughStock(10*time.Millisecond, asFast(perTx))},
			contender{named("millbridge, idempotent"), throughMillbridge(true, asFast(perTx))},
		)
		for _, c := range all[len(all)-4:] {
			bases[c.name] = named("river, tuned")
		}
	}
	return scenario{
		name: "endtoend", title: fmt.Sprintf("%d connections commit as fast as they can until the last message is handled", conns),
		unit: "msg/s", base: "river, tuned", bases: bases, latency: true, contenders: all,
	}
}

// settle gives an assembly time to become quiet before the measurement: River elects a leader.
func (st *stage) settle(ctx context.Context) error {
	if st.opts.quick {
		return nil
	}
	return pause(ctx, 1500*time.Millisecond)
}

func throughMillbridge(nudged bool, l load) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		store, err := st.millbridge(ctx)
		if err != nil {
			return result{}, err
		}
		t := newTracker(-1)
		policy := handlers.Policy{Concurrency: concurrency, Mode: handlers.ModeLease}
		bridge, err := st.startBridge(ctx, router.Config{Store: store, Forwarder: jetstream.ForwarderConfig{}}, policy, handle(t.saw))
		if err != nil {
			return result{}, err
		}
		if err := st.settle(ctx); err != nil {
			return result{}, errors.Join(err, bridge.close())
		}
		nudge := func() {}
		if nudged {
			nudge = bridge.Nudge
		}
		r, err = l(ctx, st, inOutbox(store, nudge, plain), t)
		settled := checkSettled(ctx, st.js, jobStream, jobSubject)
		err = errors.Join(err, settled, bridge.close(), t.fault(false))
		return r, errors.Join(err, st.outboxEmpty(ctx), st.handledOnce(ctx, r.Messages))
	}
}

func throughStock(poll time.Duration, l load) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		if err := st.stockTables(ctx); err != nil {
			return result{}, err
		}
		t := newTracker(-1)
		stock, err := st.startStockRouter(ctx, false, t.saw)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, stock.close()) }()
		fwd, err := st.startStockForwarder(ctx, poll, func(p message.Publisher) message.Publisher { return p })
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, fwd.close()) }()
		if err := st.settle(ctx); err != nil {
			return result{}, err
		}
		r, err = l(ctx, st, inStock, t)
		return r, errors.Join(err, st.stockForwarded(ctx), t.fault(false), checkStream(ctx, st.js, stockStream, stockStream, r.Messages, false))
	}
}

func throughRiver(tuning riverTuning, l load) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		if err := st.riverTables(ctx); err != nil {
			return result{}, err
		}
		t := newTracker(-1)
		client, err := riverWorkers(st.pool, tuning, t.saw)
		if err != nil {
			return result{}, err
		}
		if err := client.Start(ctx); err != nil {
			return result{}, err
		}
		if err := st.settle(ctx); err != nil {
			return result{}, errors.Join(err, stopRiver(client))
		}
		r, err = l(ctx, st, inRiver(client), t)
		return r, errors.Join(err, st.riverCompleted(ctx, r.Messages), stopRiver(client), t.fault(false))
	}
}
