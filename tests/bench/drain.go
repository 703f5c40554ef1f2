package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

func drainScenario() scenario {
	return scenario{
		name: "drain", title: "a backlog goes from the outbox to its stream, and its rows are gone", unit: "msg/s", base: "stock forwarder",
		contenders: []contender{
			{"stock forwarder", drainStock},
			{"millbridge", func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, withOrder) }},
			{"millbridge, no ordering keys", func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, plain) }},
			{"raw: atomic batches, no database", func(ctx context.Context, st *stage) (result, error) { return drainRaw(ctx, st, st.publishAtomic) }},
			{"raw: PublishMsgAsync, no database", func(ctx context.Context, st *stage) (result, error) { return drainRaw(ctx, st, st.publishAsync) }},
		},
	}
}

func drainMillbridge(ctx context.Context, st *stage, opts func(seq int) []schema.Option) (result, error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	n := st.opts.messages
	if err := st.load(ctx, store, n, opts); err != nil {
		return result{}, err
	}
	forwarder, err := jetstream.NewForwarder(jetstream.StoreOf(store), st.conn, jetstream.ForwarderConfig{})
	if err != nil {
		return result{}, err
	}
	m := st.meter()
	tally, err := forwarder.Drain(ctx)
	r := m.stop(tally.Sent)
	if err == nil && tally.Sent != n {
		err = fmt.Errorf("the forwarder counts %d of %d messages", tally.Sent, n)
	}
	inOrder := len(opts(0)) > 0
	return r, errors.Join(err, st.outboxEmpty(ctx), checkStream(ctx, st.js, jobStream, jobSubject, n, inOrder))
}

func drainStock(ctx context.Context, st *stage) (r result, err error) {
	if err := st.stockTables(ctx); err != nil {
		return result{}, err
	}
	n := min(st.opts.stock, st.opts.messages)
	if err := st.stockLoad(ctx, n); err != nil {
		return result{}, err
	}
	counting := &countingPublisher{want: n, done: make(chan struct{})}
	m := st.meter()
	fwd, err := st.startStockForwarder(ctx, 0, func(p message.Publisher) message.Publisher {
		counting.Publisher = p
		return counting
	})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, fwd.close()) }()
	select {
	case <-counting.done:
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	}
	r = m.stop(n)
	return r, errors.Join(st.stockForwarded(ctx), checkStream(ctx, st.js, stockStream, stockStream, n, true))
}

func drainRaw(ctx context.Context, st *stage, publish func(context.Context, []*nats.Msg) error) (result, error) {
	if err := st.rawStream(ctx); err != nil {
		return result{}, err
	}
	n := st.opts.messages
	msgs, err := wires(n)
	if err != nil {
		return result{}, err
	}
	m := st.meter()
	err = publish(ctx, msgs)
	r := m.stop(n)
	return r, errors.Join(err, checkStream(ctx, st.js, jobStream, jobSubject, n, true))
}
