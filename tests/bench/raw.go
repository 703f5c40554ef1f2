package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// rawStream makes a stream as Millbridge's for jobs.
func (st *stage) rawStream(ctx context.Context) error {
	_, err := st.js.CreateStream(ctx, natsjs.StreamConfig{
		Name: jobStream, Subjects: []string{"mb.jobs.>", "mb.cursor.>"}, Storage: natsjs.FileStorage, Discard: natsjs.DiscardNew,
		Retention: natsjs.WorkQueuePolicy, AllowAtomicPublish: true, AllowRollup: true, Replicas: st.replicas,
	})
	return err
}

// publishAtomic writes messages in atomic batches of 999 that end in one more message, as the forwarder's, the next batch
// being sent while the server commits. Nothing is read from or written to a database.
func (st *stage) publishAtomic(ctx context.Context, msgs []*nats.Msg) error {
	const most, open = 999, 3
	answers := make(chan *nats.Msg, open)
	inbox := st.conn.NewInbox()
	sub, err := st.conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed
	under := 0
	await := func() error {
		select {
		case m := <-answers:
			under--
			var answer struct {
				Seq   uint64 `json:"seq"`
				Error *struct {
					Description string `json:"description"`
				} `json:"error"`
			}
			if err := json.Unmarshal(m.Data, &answer); err != nil {
				return fmt.Errorf("read the answer to a batch: %w", err)
			}
			if answer.Error != nil || answer.Seq == 0 {
				return fmt.Errorf("the server refused a batch: %s", m.Data)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return errors.New("no answer to a batch")
		}
	}
	for len(msgs) > 0 {
		n := min(most, len(msgs))
		id := nuid.Next()
		for i, m := range msgs[:n] {
			m.Header["Nats-Batch-Id"], m.Header["Nats-Batch-Sequence"] = []string{id}, []string{strconv.Itoa(i + 1)}
			if err := st.conn.PublishMsg(m); err != nil {
				return err
			}
		}
		last := &nats.Msg{Subject: "mb.cursor.jobs.bench", Reply: inbox, Data: make([]byte, 24*n), Header: nats.Header{
			"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(n + 1)}, "Nats-Batch-Commit": {"1"}, "Nats-Rollup": {"sub"},
		}}
		if err := st.conn.PublishMsg(last); err != nil {
			return err
		}
		if under++; under == open {
			if err := await(); err != nil {
				return err
			}
		}
		msgs = msgs[n:]
	}
	for under > 0 {
		if err := await(); err != nil {
			return err
		}
	}
	return nil
}

// publishAsync writes messages one by one without waiting for each.
func (st *stage) publishAsync(ctx context.Context, msgs []*nats.Msg) error {
	futures := make([]natsjs.PubAckFuture, len(msgs))
	for i, m := range msgs {
		f, err := st.js.PublishMsgAsync(m, natsjs.WithStallWait(10*time.Second))
		if err != nil {
			return err
		}
		futures[i] = f
	}
	select {
	case <-st.js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return errors.New("the server has not answered all messages")
	}
	for _, f := range futures {
		select {
		case err := <-f.Err():
			return err
		default:
		}
	}
	return nil
}

func (st *stage) rawConsumer(ctx context.Context) (natsjs.Consumer, error) {
	return st.js.CreateConsumer(ctx, jobStream, natsjs.ConsumerConfig{
		Durable: "raw", FilterSubject: jobSubject, AckPolicy: natsjs.AckExplicitPolicy, MaxAckPending: 5000,
	})
}

func consumeRaw(ctx context.Context, st *stage) (r result, err error) {
	if err := st.rawStream(ctx); err != nil {
		return result{}, err
	}
	n := st.opts.messages
	if err := st.fill(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	m := st.meter()
	consumer, err := st.rawConsumer(ctx)
	if err != nil {
		return result{}, err
	}
	failed := make(chan error, 1)
	running, err := consumer.Consume(func(msg natsjs.Msg) {
		if err := msg.Ack(); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		t.saw(msg.Data())
	}, natsjs.PullMaxMessages(4000))
	if err != nil {
		return result{}, err
	}
	defer running.Stop()
	err = t.await(ctx)
	r = m.stop(n)
	select {
	case ackErr := <-failed:
		err = errors.Join(err, ackErr)
	default:
	}
	return r, errors.Join(err, checkSettled(ctx, st.js, jobStream, jobSubject), t.fault(true))
}

// consumeRawTransactions is what a transactional handler does, without a bridge and without an inbox.
func consumeRawTransactions(ctx context.Context, st *stage) (r result, err error) {
	if err := st.rawStream(ctx); err != nil {
		return result{}, err
	}
	n := st.opts.stock
	if err := st.fill(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	err = st.withWriters(ctx, conns, func(all []*writer) error {
		m := st.meter()
		consumer, err := st.rawConsumer(ctx)
		if err != nil {
			return err
		}
		messages, err := consumer.Messages(natsjs.PullMaxMessages(1000))
		if err != nil {
			return err
		}
		go func() {
			select {
			case <-t.done:
			case <-ctx.Done():
			}
			messages.Stop()
		}()
		err = inParallel(all, func(w *writer) error {
			for {
				msg, err := messages.Next(natsjs.NextContext(ctx))
				if errors.Is(err, natsjs.ErrMsgIteratorClosed) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := bare(ctx, w, seqOf(msg.Data()), 0); err != nil {
					return err
				}
				if err := msg.Ack(); err != nil {
					return err
				}
				t.saw(msg.Data())
			}
		})
		r = m.stop(n)
		return err
	})
	return r, errors.Join(err, checkSettled(ctx, st.js, jobStream, jobSubject), st.holds(ctx, "business", n), t.fault(false))
}
