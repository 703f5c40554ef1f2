package publishers

import (
	"context"
	"log/slog"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/millbridge/millbridge/schema"
)

// A Store keeps the outbox in a database. Tx is a transaction of the database's driver. postgres.Store,
// postgres.SQLStore and sqlite.Store are stores.
type Store[Tx any] interface {
	// Append puts envelopes into the outbox in tx: all of them or, with an error, none.
	Append(ctx context.Context, tx Tx, envs []schema.Envelope) ([]schema.Receipt, error)
	// Cancel takes back a message that still waits for its time.
	Cancel(ctx context.Context, tx Tx, id string) error
	// Reschedule gives a message that still waits another time.
	Reschedule(ctx context.Context, tx Tx, id string, at time.Time) error
	// Unit runs fn in a transaction of its own.
	Unit(ctx context.Context, fn func(schema.Unit) error) error
	// MaxPayload returns the payload limit and remembers it for SchemaAdapter.
	MaxPayload(ctx context.Context, tx Tx) (int, error)
	// Durability returns what this database keeps of what it confirms, and what keeps it from giving more.
	Durability(ctx context.Context) (level schema.Durability, weak string, err error)
	// SchemaAdapter turns Watermill messages into statements.
	SchemaAdapter() wmsql.SchemaAdapter
	// Exec runs such a statement in tx.
	Exec(ctx context.Context, tx Tx, query string, args ...any) error
}

// Config is the rarely changed part of an [Outbox]. The zero value works.
type Config struct {
	// Logger gets a line at debug level for each publishing. The default discards it.
	Logger *slog.Logger
	// Now gives messages the time they were made. The default is the store's clock.
	Now func() time.Time
	// Nudge tells a forwarder that there is something to do. It must not block. Without it, or when it is lost, the
	// forwarder notices by itself a little later.
	Nudge func()
}

// An Outbox puts messages into the database for a forwarder to send. It holds no connection and is safe for concurrent
// use. Make one with [NewOutbox].
type Outbox[Tx any] struct {
	store Store[Tx]
	cfg   Config
}

// NewOutbox returns an outbox in store. It does no I/O.
func NewOutbox[Tx any](store Store[Tx], cfg Config) *Outbox[Tx] {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Nudge == nil {
		cfg.Nudge = func() {}
	}
	return &Outbox[Tx]{store: store, cfg: cfg}
}

// Publish puts messages into the outbox in tx and answers for each, in order: with the message's id or, for an
// idempotency key that was used before with the same content, with the id of the message that stands for it. The
// messages exist once tx commits. Either all are written or, with an error, none. No messages are no work.
//
// After the commit call [Outbox.Nudge] to have them sent at once.
func (o *Outbox[Tx]) Publish(ctx context.Context, tx Tx, envs ...schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	receipts, err := o.store.Append(ctx, tx, o.timed(envs))
	if err != nil {
		return nil, err
	}
	o.cfg.Logger.DebugContext(ctx, "published", "messages", len(envs))
	return receipts, nil
}

// PublishAlone is Publish in a transaction of its own, for messages without business rows. When it returns without an
// error the messages are committed and a forwarder is nudged.
func (o *Outbox[Tx]) PublishAlone(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	var receipts []schema.Receipt
	err := o.store.Unit(ctx, func(u schema.Unit) error {
		var err error
		receipts, err = u.Append(ctx, o.timed(envs))
		return err
	})
	if err != nil {
		return nil, err
	}
	o.cfg.Logger.DebugContext(ctx, "published alone", "messages", len(envs))
	o.Nudge()
	return receipts, nil
}

// timed fills in the time where a message has none, or leaves that to the store.
func (o *Outbox[Tx]) timed(envs []schema.Envelope) []schema.Envelope {
	if o.cfg.Now == nil {
		return envs
	}
	now := o.cfg.Now().UTC()
	timed := make([]schema.Envelope, len(envs))
	for i, e := range envs {
		if e.Time.IsZero() {
			e.Time = now
		}
		timed[i] = e
	}
	return timed
}

// Cancel takes back a scheduled message, in tx. It fails with [schema.ErrNotFound] when the message has moved on, and with
// [schema.ErrAmbiguous] when several scheduled messages have this id.
func (o *Outbox[Tx]) Cancel(ctx context.Context, tx Tx, id string) error {
	return o.store.Cancel(ctx, tx, id)
}

// Reschedule makes a scheduled message wait until at instead, in tx. It fails as Cancel does.
func (o *Outbox[Tx]) Reschedule(ctx context.Context, tx Tx, id string, at time.Time) error {
	return o.store.Reschedule(ctx, tx, id, at)
}

// Nudge tells a forwarder that a transaction with messages has committed.
func (o *Outbox[Tx]) Nudge() { o.cfg.Nudge() }
