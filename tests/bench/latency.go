package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
)

const (
	few, many = 200, 2000 // transactions a second
)

func latencyScenario() scenario {
	atRate := func(name string, perSecond int) string { return fmt.Sprintf("%s, %d a second", name, perSecond) }
	s := scenario{
		name: "latency", title: "transactions with one message each at a fixed rate, from commit to handler", unit: "msg/s", latency: true,
		contenders: []contender{
			{"stock, PollInterval 10 ms", throughStock(10*time.Millisecond, steady(few))},
			{"stock, PollInterval 1 s (default)", throughStock(0, steady(few))},
			{"millbridge, nudged", throughMillbridge(true, steady(few))},
			{"millbridge, polling alone", throughMillbridge(false, steady(few))},
			{"river, defaults", throughRiver(riverDefault, steady(few))},
			{"river, tuned", throughRiver(riverTuned, steady(few))},
			{"no forwarder", withoutForwarder(steady(many))},
			{"millbridge, nudged", throughMillbridge(true, steady(many))},
			{"millbridge, polling alone", throughMillbridge(false, steady(many))},
			{"stock, PollInterval 10 ms", throughStock(10*time.Millisecond, steady(many))},
			{"river, tuned", throughRiver(riverTuned, steady(many))},
		},
		bases: make(map[string]string),
	}
	for i := range s.contenders {
		c := &s.contenders[i]
		if i < 6 {
			c.name = atRate(c.name, few)
			continue
		}
		c.name = atRate(c.name, many)
		s.bases[c.name] = atRate("no forwarder", many)
	}
	return s
}

// withoutForwarder has the writers alone: their messages stay in the outbox.
func withoutForwarder(l load) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		store, err := st.millbridge(ctx)
		if err != nil {
			return result{}, err
		}
		r, err = l(ctx, st, inOutbox(store, nil, plain), nil)
		return r, errors.Join(err, st.holds(ctx, "millbridge.outbox", r.Messages))
	}
}

// idleScenario shows what an assembly uses that has nothing to do.
func idleScenario() scenario {
	return scenario{
		name: "idle", title: "nothing to do: processor time of client and PostgreSQL together", unit: "% of a core", per: "second",
		contenders: []contender{
			{"no client", idle(func(context.Context, *stage) (func() error, error) { return func() error { return nil }, nil })},
			{"millbridge", idle(idleMillbridge)},
			{"stock, PollInterval 1 s (default)", idle(idleStock(0))},
			{"stock, PollInterval 10 ms", idle(idleStock(10 * time.Millisecond))},
			{"river, defaults", idle(idleRiver(riverDefault))},
			{"river, tuned", idle(idleRiver(riverTuned))},
		},
	}
}

// idle measures what start has started, when it has become quiet. The rate is the share of a core in percent; NATS, which
// has nothing to do either, is only in the processor time of a second.
func idle(start func(ctx context.Context, st *stage) (stop func() error, err error)) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		stop, err := start(ctx, st)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := st.settle(ctx); err != nil {
			return result{}, err
		}
		m := st.meter()
		err = pause(ctx, 5*st.opts.window)
		r = m.stop(int(max(1, time.Since(m.start).Seconds()+0.5))) // seconds
		r.Rate = 100 * (r.CPU.Client + r.CPU.PostgreSQL) / r.Seconds
		return r, err
	}
}

func idleMillbridge(ctx context.Context, st *stage) (stop func() error, err error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return nil, err
	}
	bridge, err := st.startBridge(ctx, router.Config{Store: store}, handlers.Policy{}, handle(func([]byte) {}))
	if err != nil {
		return nil, err
	}
	return bridge.close, nil
}

func idleStock(poll time.Duration) func(ctx context.Context, st *stage) (stop func() error, err error) {
	return func(ctx context.Context, st *stage) (stop func() error, err error) {
		if err := st.stockTables(ctx); err != nil {
			return nil, err
		}
		stock, err := st.startStockRouter(ctx, false, func([]byte) {})
		if err != nil {
			return nil, err
		}
		fwd, err := st.startStockForwarder(ctx, poll, func(p message.Publisher) message.Publisher { return p })
		if err != nil {
			return nil, errors.Join(err, stock.close())
		}
		return func() error { return errors.Join(fwd.close(), stock.close()) }, nil
	}
}

func idleRiver(tuning riverTuning) func(ctx context.Context, st *stage) (stop func() error, err error) {
	return func(ctx context.Context, st *stage) (stop func() error, err error) {
		if err := st.riverTables(ctx); err != nil {
			return nil, err
		}
		client, err := riverWorkers(st.pool, tuning, func([]byte) {})
		if err != nil {
			return nil, err
		}
		return func() error { return stopRiver(client) }, client.Start(ctx)
	}
}
