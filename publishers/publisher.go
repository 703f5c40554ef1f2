package publishers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/schema"
)

// One statement takes at most this much, far below what the databases can take.
const (
	chunkMessages = 10_000
	chunkBytes    = 16 << 20
)

// Publisher returns a Watermill publisher that writes in tx, with ctx for every statement: it is worth nothing after
// either of them has ended. A message's UUID becomes its id, its topic says what it is (see [schema.FromTopic]) and its
// context carries options ([schema.ContextWithOptions]). Messages with an idempotency key of their own or a time to wait
// for need [Outbox.Publish] and are refused.
//
// Validation errors come as Publish gives them, and then nothing is written; after any other error the transaction
// should be rolled back.
func (o *Outbox[Tx]) Publisher(ctx context.Context, tx Tx) message.Publisher {
	return &publisher[Tx]{outbox: o, ctx: ctx, tx: tx}
}

type publisher[Tx any] struct {
	outbox *Outbox[Tx]
	ctx    context.Context // of the transaction; Watermill passes none
	tx     Tx
	closed atomic.Bool
}

func (p *publisher[Tx]) Publish(topic string, msgs ...*message.Message) error {
	if p.closed.Load() {
		return wmsql.ErrPublisherClosed
	}
	if len(msgs) == 0 {
		return nil
	}
	if _, err := p.outbox.store.MaxPayload(p.ctx, p.tx); err != nil {
		return err
	}
	chunks := split(p.timed(msgs))
	adapter := p.outbox.store.SchemaAdapter()
	queries := make([]wmsql.Query, len(chunks))
	faults := make([]error, len(chunks))
	for i, chunk := range chunks { // all of them before the first is written
		queries[i], faults[i] = adapter.InsertQuery(topic, chunk)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	for i, chunk := range chunks {
		if err := p.write(topic, chunk, prepared{adapter, queries[i]}); err != nil {
			return err
		}
	}
	p.outbox.cfg.Logger.DebugContext(p.ctx, "published", "topic", topic, "messages", len(msgs))
	return nil
}

// write passes one chunk through watermill-sql, whose logger must not be a real one: it prints payloads.
func (p *publisher[Tx]) write(topic string, chunk message.Messages, adapter wmsql.SchemaAdapter) error {
	exec := executor{func(query string, args []any) error { return p.outbox.store.Exec(p.ctx, p.tx, query, args...) }}
	pub, err := wmsql.NewPublisher(exec, wmsql.PublisherConfig{SchemaAdapter: adapter}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return errors.Join(pub.Publish(topic, chunk...), pub.Close())
}

func (p *publisher[Tx]) Close() error {
	p.closed.Store(true)
	return nil
}

// timed returns copies of msgs that get the outbox's time where they have none, or leaves that to the store.
func (p *publisher[Tx]) timed(msgs message.Messages) message.Messages {
	if p.outbox.cfg.Now == nil {
		return msgs
	}
	now := p.outbox.cfg.Now().UTC()
	fill := func(e *schema.Envelope) {
		if e.Time.IsZero() {
			e.Time = now
		}
	}
	timed := make(message.Messages, len(msgs))
	for i, msg := range msgs {
		timed[i] = msg.CopyWithContext()
		timed[i].SetContext(schema.ContextWithOptions(msg.Context(), fill))
	}
	return timed
}

func split(msgs message.Messages) []message.Messages {
	var chunks []message.Messages
	start, size := 0, 0
	for i, msg := range msgs {
		if i > start && (i-start == chunkMessages || size+len(msg.Payload) > chunkBytes) {
			chunks = append(chunks, msgs[start:i])
			start, size = i, 0
		}
		size += len(msg.Payload)
	}
	return append(chunks, msgs[start:])
}

// prepared is an adapter whose statement is made already.
type prepared struct {
	wmsql.SchemaAdapter
	query wmsql.Query
}

func (p prepared) InsertQuery(string, message.Messages) (wmsql.Query, error) { return p.query, nil }

// executor is what watermill-sql sees of a transaction. Its publisher only ever executes; and it brings a context that
// never ends, where the caller's is needed.
type executor struct {
	exec func(query string, args []any) error
}

var errExecOnly = errors.New("the outbox's publisher does not read")

func (e executor) Exec(query string, args ...any) (sql.Result, error) {
	return driver.ResultNoRows, e.exec(query, args)
}

func (e executor) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return e.Exec(query, args...)
}

func (executor) Query(string, ...any) (*sql.Rows, error) { return nil, errExecOnly }

func (executor) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errExecOnly
}

func (e executor) QueryRow(query string, args ...any) *sql.Row {
	return e.QueryRowContext(context.Background(), query, args...)
}

// QueryRowContext returns a row that gives errExecOnly: only database/sql can make one.
func (executor) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	db := sql.OpenDB(noConnection{})
	defer db.Close()
	return db.QueryRowContext(ctx, query, args...)
}

type noConnection struct{}

func (noConnection) Connect(context.Context) (driver.Conn, error) { return nil, errExecOnly }
func (noConnection) Driver() driver.Driver                        { return nil }
