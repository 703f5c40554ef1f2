package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

func drainScenario() scenario {
	return scenario{
		name: "drain", title: "a backlog goes from the outbox to its stream, and its rows are gone", unit: "msg/s", base: "stock forwarder",
		contenders: []contender{
			{"stock forwarder", drainStock},
			{"millbridge", func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, withOrder) }},
			{"millbridge, no ordering keys", func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, plain) }},
			{"millbridge, from a stock outbox", drainFed},
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
	return st.drain(ctx, n, len(opts(0)) > 0)
}

// drain measures a forwarder with n rows that wait, and checks what it did.
func (st *stage) drain(ctx context.Context, n int, inOrder bool) (result, error) {
	r, err := st.forward(ctx, order{Messages: n}, st.outboxEmpty)
	return r, errors.Join(err, checkStream(ctx, st.js, jobStream, jobSubject, n, inOrder))
}

func drainStock(ctx context.Context, st *stage) (r result, err error) {
	if err := st.stockTables(ctx); err != nil {
		return result{}, err
	}
	n := min(st.opts.stock, st.opts.messages)
	if err := st.stockLoad(ctx, n); err != nil {
		return result{}, err
	}
	r, err = st.forward(ctx, order{Stock: true, Messages: n}, st.stockForwarded)
	return r, errors.Join(err, checkStream(ctx, st.js, stockStream, stockStream, n, true))
}

func drainFed(ctx context.Context, st *stage) (result, error) {
	if _, err := st.millbridge(ctx); err != nil {
		return result{}, err
	}
	if err := st.stockTables(ctx); err != nil {
		return result{}, err
	}
	n := st.opts.messages
	if err := st.stockLoad(ctx, n); err != nil {
		return result{}, err
	}
	r, err := st.forward(ctx, order{Feed: true, Messages: n}, st.outboxEmpty)
	left, leftErr := st.count(ctx, `SELECT count(*) FROM "watermill_outbox"`)
	if left != 0 {
		leftErr = errors.Join(leftErr, fmt.Errorf("%d rows are still in the stock outbox", left))
	}
	return r, errors.Join(err, leftErr, checkStream(ctx, st.js, jobStream, jobSubject, n, false))
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
