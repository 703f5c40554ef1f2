package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The stock assembly: watermill-sql's publisher in the caller's transaction, wrapped by components/forwarder, whose
// daemon reads the table and publishes with watermill-nats, which gives each message a Nats-Msg-Id. AutoProvision is
// off: it asks the server for the stream before each message.
const (
	stockTopic  = "outbox"
	stockStream = "orders" // and its subject, as watermill-nats has them
	stockGroup  = "stock"
)

func stockMessage(seq int) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), payload(seq))
	m.Metadata = metadata(seq)
	return m
}

// stockTables makes the tables of the stock outbox, as its subscriber does.
func (st *stage) stockTables(ctx context.Context) error {
	db, err := st.stdDB(1)
	if err != nil {
		return err
	}
	defer db.Close()
	sub, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := errors.Join(sub.SubscribeInitialize(stockTopic), sub.Close()); err != nil {
		return fmt.Errorf("make the stock tables: %w", err)
	}
	_, err = st.js.CreateStream(ctx, natsjs.StreamConfig{Name: stockStream, Subjects: []string{stockStream}, Storage: natsjs.FileStorage, Replicas: st.replicas})
	return err
}

// stockPublish puts messages into the stock outbox in a transaction.
func stockPublish(tx *sql.Tx, msgs ...*message.Message) error {
	pub, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: stockTopic}).Publish(stockStream, msgs...)
}

// envelopes catches what the stock publisher would write.
type envelopes struct{ got []*message.Message }

func (c *envelopes) Publish(_ string, msgs ...*message.Message) error {
	c.got = append(c.got, msgs...)
	return nil
}

func (c *envelopes) Close() error { return nil }

// stockLoad fills the stock outbox with n messages, in transactions of 10, as somebody who copies rows; a hundred
// transactions go in one round trip.
func (st *stage) stockLoad(ctx context.Context, n int) error {
	conn, err := st.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const perTx, perTrip = 10, 1000
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return err
	}
	for from := 0; from < n; from += perTrip {
		caught := &envelopes{}
		wrap := forwarder.NewPublisher(caught, forwarder.PublisherConfig{ForwarderTopic: stockTopic})
		for seq := from; seq < min(from+perTrip, n); seq++ {
			if err := wrap.Publish(stockStream, stockMessage(seq)); err != nil {
				return err
			}
		}
		batch := &pgx.Batch{}
		for tx := range slices.Chunk(caught.got, perTx) {
			batch.Queue("BEGIN")
			for _, m := range tx {
				header, err := json.Marshal(m.Metadata)
				if err != nil {
					return err
				}
				batch.Queue(`INSERT INTO "watermill_outbox" (uuid, payload, metadata, transaction_id)
					VALUES ($1, $2, $3, pg_current_xact_id())`, m.UUID, []byte(m.Payload), header)
			}
			batch.Queue("COMMIT")
		}
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("fill the stock outbox: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "SET synchronous_commit = on"); err != nil {
		return err
	}
	return st.tidy(ctx, `"watermill_outbox"`)
}

// A stockForwarder runs between its start and close.
type stockForwarder struct {
	fwd    *forwarder.Forwarder
	pub    message.Publisher
	db     *sql.DB
	cancel context.CancelFunc
	ended  chan error
}

// startStockForwarder runs the daemon. poll 0 is its default of a second; it does not wait while there is something.
func (st *stage) startStockForwarder(ctx context.Context, poll time.Duration, wrap func(message.Publisher) message.Publisher) (*stockForwarder, error) {
	db, err := st.stdDB(4)
	if err != nil {
		return nil, err
	}
	pub, err := wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: st.nats.url, JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f := &stockForwarder{pub: pub, db: db, ended: make(chan error, 1)}
	sub, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		ConsumerGroup: stockGroup, PollInterval: poll,
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, // batches of 100
	}, watermill.NopLogger{})
	if err == nil {
		f.fwd, err = forwarder.NewForwarder(sub, wrap(pub), watermill.NopLogger{}, forwarder.Config{ForwarderTopic: stockTopic})
	}
	if err != nil {
		return nil, errors.Join(err, pub.Close(), db.Close())
	}
	ctx, f.cancel = context.WithCancel(ctx)
	go func() { f.ended <- f.fwd.Run(ctx) }()
	<-f.fwd.Running()
	return f, nil
}

func (f *stockForwarder) close() error {
	err := f.fwd.Close()
	f.cancel()
	return errors.Join(err, <-f.ended, f.pub.Close(), f.db.Close())
}

// stockForwarded waits until the stock forwarder has noted that it has sent everything.
func (st *stage) stockForwarded(ctx context.Context) error {
	left := 0
	for range 100 {
		var err error
		left, err = st.count(ctx, `SELECT count(*) FROM "watermill_outbox" AS m, "watermill_offsets_outbox" AS o
			WHERE o.consumer_group = $1 AND (m.transaction_id, m."offset") > (o.last_processed_transaction_id, o.offset_acked)`, stockGroup)
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d rows are not noted as sent", left)
}

// countingPublisher closes done after want messages.
type countingPublisher struct {
	message.Publisher
	n    atomic.Int64
	want int
	done chan struct{}
}

func (c *countingPublisher) Publish(topic string, msgs ...*message.Message) error {
	if err := c.Publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	if c.n.Add(int64(len(msgs))) == int64(c.want) {
		close(c.done)
	}
	return nil
}

// A stockRouter is Watermill's router with watermill-nats's subscriber on the stock stream.
type stockRouter struct {
	router *message.Router
	cancel context.CancelFunc
	ended  chan error
}

func (st *stage) startStockRouter(ctx context.Context, ackAsync bool, handle func(payload []byte)) (*stockRouter, error) {
	sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: st.nats.url, SubscribersCount: 1, CloseTimeout: 2 * time.Second, AckWaitTimeout: 30 * time.Second,
		JetStream: wmnats.JetStreamConfig{
			AckAsync: ackAsync, DurablePrefix: stockGroup, SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()},
		},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 2 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	router.AddConsumerHandler("bench", stockStream, sub, func(m *message.Message) error {
		handle(m.Payload)
		return nil
	})
	r := &stockRouter{router: router, ended: make(chan error, 1)}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() { r.ended <- router.Run(ctx) }()
	<-router.Running()
	return r, nil
}

func (r *stockRouter) close() error {
	err := r.router.Close()
	r.cancel()
	return errors.Join(err, <-r.ended)
}
