package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// concurrency is how many handlers run at the same time; River's default has as many workers.
const concurrency = 100

func consumeScenario() scenario {
	lease, tx := handlers.Policy{Concurrency: concurrency, Mode: handlers.ModeLease}, handlers.Policy{Concurrency: conns, Mode: handlers.ModeTx}
	none := handlers.Policy{Concurrency: concurrency, Mode: handlers.ModeNone}
	return scenario{
		name: "consume", title: "messages that wait go to a handler, which does nothing unless it says so", unit: "msg/s",
		base: "stock router, AckSync (default)",
		contenders: []contender{
			{"stock router, AckSync (default)", func(ctx context.Context, st *stage) (result, error) {
				return consumeStock(ctx, st, false, st.opts.stock)
			}},
			{"stock router, AckAsync", func(ctx context.Context, st *stage) (result, error) {
				return consumeStock(ctx, st, true, st.opts.messages)
			}},
			{"millbridge, no inbox", func(ctx context.Context, st *stage) (result, error) {
				return consumeMillbridge(ctx, st, none, st.opts.messages)
			}},
			{"millbridge, lease (default)", func(ctx context.Context, st *stage) (result, error) {
				return consumeMillbridge(ctx, st, lease, st.opts.stock)
			}},
			{"millbridge, transactional, inserts a row", func(ctx context.Context, st *stage) (result, error) {
				return consumeMillbridge(ctx, st, tx, st.opts.stock)
			}},
			{"millbridge, no inbox, 2,000 others in back-off", consumeBesideBackoff},
			{"millbridge, no inbox, 10 ms, 20 at once", consumeSlow(20)},
			{"millbridge, no inbox, 10 ms, 100 at once", consumeSlow(concurrency)},
			{"river, defaults", func(ctx context.Context, st *stage) (result, error) {
				return consumeRiver(ctx, st, riverDefault, st.opts.transactions())
			}},
			{"river, tuned", func(ctx context.Context, st *stage) (result, error) {
				return consumeRiver(ctx, st, riverTuned, st.opts.stock)
			}},
			{"raw: Consume, Ack", consumeRaw},
			{"raw: Consume, transaction, Ack", consumeRawTransactions},
		},
	}
}

func consumeMillbridge(ctx context.Context, st *stage, policy handlers.Policy, n int) (r result, err error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	if err := st.fill(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	h := handle(t.saw)
	if policy.Mode == handlers.ModeTx {
		h = func(ctx context.Context, e schema.Envelope) error {
			tx, err := handlers.Tx[pgx.Tx](ctx)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, sqlBusiness, target, seqOf(e.Payload)); err != nil {
				return err
			}
			t.saw(e.Payload)
			return nil
		}
	}
	m := st.meter()
	bridge, err := st.startBridge(ctx, router.Config{Store: store, NoForward: true}, policy, h)
	if err != nil {
		return result{}, err
	}
	err = t.await(ctx)
	r = m.stop(n)
	settled := checkSettled(ctx, st.js, jobStream, jobSubject)
	err = errors.Join(err, settled, bridge.close(), t.fault(false))
	switch policy.Mode {
	case handlers.ModeTx:
		err = errors.Join(err, st.holds(ctx, "business", n), st.handledOnce(ctx, n))
	case handlers.ModeLease:
		err = errors.Join(err, st.handledOnce(ctx, n))
	}
	return r, err
}

// handledOnce counts the keys in the inbox.
func (st *stage) handledOnce(ctx context.Context, want int) error {
	n, err := st.count(ctx, `SELECT count(*) FROM millbridge.inbox WHERE state = 'done'`)
	if err == nil && n != want {
		err = fmt.Errorf("the inbox has %d of %d messages as done", n, want)
	}
	return err
}

// fill puts n messages into the stream of jobs.
func (st *stage) fill(ctx context.Context, n int) error {
	msgs, err := wires(n)
	if err == nil {
		err = st.publishAsync(ctx, msgs)
	}
	if err != nil {
		return fmt.Errorf("fill the stream: %w", err)
	}
	return nil
}

func (st *stage) fillStock(ctx context.Context, n int) error {
	_, err := st.js.CreateStream(ctx, natsjs.StreamConfig{Name: stockStream, Subjects: []string{stockStream}, Storage: natsjs.FileStorage})
	if err != nil {
		return err
	}
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		m := stockMessage(i)
		msgs[i] = &nats.Msg{Subject: stockStream, Data: m.Payload, Header: nats.Header{wmnats.WatermillUUIDHdr: {m.UUID}}}
		for k, v := range m.Metadata {
			msgs[i].Header.Set(k, v)
		}
	}
	return st.publishAsync(ctx, msgs)
}

func consumeStock(ctx context.Context, st *stage, ackAsync bool, n int) (r result, err error) {
	if err := st.fillStock(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	m := st.meter()
	stock, err := st.startStockRouter(ctx, ackAsync, t.saw)
	if err != nil {
		return result{}, err
	}
	err = t.await(ctx)
	r = m.stop(n)
	return r, errors.Join(err, st.stockAcked(ctx), stock.close(), t.fault(false))
}

// stockAcked waits until the server knows that all messages were handled.
func (st *stage) stockAcked(ctx context.Context) error {
	stream, err := st.js.Stream(ctx, stockStream)
	if err != nil {
		return err
	}
	open := 0
	for range 100 {
		open = 0
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			open += int(info.NumPending) + info.NumAckPending
		}
		if err := list.Err(); err != nil {
			return err
		}
		if open == 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d messages are not acked", open)
}

func consumeRiver(ctx context.Context, st *stage, tuning riverTuning, n int) (r result, err error) {
	if err := st.riverTables(ctx); err != nil {
		return result{}, err
	}
	inserter, err := riverInserter(st.pool)
	if err != nil {
		return result{}, err
	}
	for from := 0; from < n; from += 1000 {
		if _, err := inserter.InsertManyFast(ctx, riverJobs(from, min(from+1000, n))); err != nil {
			return result{}, err
		}
	}
	if err := st.tidy(ctx, "river_job"); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	client, err := riverWorkers(st.pool, tuning, t.saw)
	if err != nil {
		return result{}, err
	}
	m := st.meter()
	if err := client.Start(ctx); err != nil {
		return result{}, err
	}
	err = t.await(ctx)
	r = m.stop(n)
	return r, errors.Join(err, st.riverCompleted(ctx, n), stopRiver(client), t.fault(false))
}
