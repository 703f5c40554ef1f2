package ops

import (
	"context"
	"errors"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// Store is what this package asks of a database.
type Store interface {
	SchemaVersion(ctx context.Context) (have, want int, err error)
	Check(ctx context.Context) error
	WeakSettings(ctx context.Context) (notes []string, err error)
	Info(ctx context.Context) (schema.OutboxInfo, error)
	Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error)
	Backlogs(ctx context.Context) ([]schema.Backlog, error)
	ListOutbox(ctx context.Context, filter schema.RowFilter) ([]schema.Row, error)
	ListScheduled(ctx context.Context, filter schema.RowFilter) ([]schema.ScheduledRow, error)
	ListParked(ctx context.Context, filter schema.RowFilter) ([]schema.ParkedRow, error)
	ReleaseParked(ctx context.Context, name schema.RowName) (int, error)
	DropParked(ctx context.Context, name schema.RowName) error
	Circuits(ctx context.Context) ([]schema.Circuit, error)
	InboxByMessage(ctx context.Context, messageID string) ([]schema.InboxRecord, error)
	InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error)
	verifyStore
	sagaStore
	switchStore
	deadletters.Store
}

// verifyStore is what a verification asks of a database.
type verifyStore interface {
	Keep() time.Duration
	Accounts(ctx context.Context, p schema.AccountsParams) (schema.Accounts, error)
	Accept(ctx context.Context, stream schema.Stream, n int64) error
	Settled(ctx context.Context, run schema.Run) error
	Unplaced(ctx context.Context, messageIDs []string) ([]string, error)
	DeadRecords(ctx context.Context, after []byte, limit int) ([]schema.DeadRecord, error)
	PublishedKeys(ctx context.Context, after []byte, limit int) ([]schema.PublishedKey, error)
	KnownKeys(ctx context.Context, hashes [][32]byte) (map[[32]byte]bool, error)
}

// Config describes what a [Service] looks at.
type Config struct {
	Subjects schema.Subjects
	// Leases says that forwarders hold leases on shards, so that a shard nobody holds can be told. SQLite has none.
	Leases bool
	// Durable says that what the server confirms is on disk even though the streams have one copy.
	Durable bool
	// Repair looks for shards that are stopped, and repairs them; nil leaves both out.
	Repair *jetstream.Repairer
	// EventTTL is how long events stay in their stream; 0 if they stay for ever.
	EventTTL time.Duration
	// Stocks are the stock Watermill outboxes that are emptied into ours.
	Stocks []StockOutbox
	// PartTimeout bounds each question of a report, so that one slow answer does not hold up the others; 0 means 1.5 s.
	PartTimeout time.Duration
}

// Service is safe for concurrent use.
type Service struct {
	store Store
	js    natsjs.JetStream
	box   *deadletters.Box
	cfg   Config
}

// New returns a service on a store and a connection, which may be down, or nil where only rows are looked at. It does no
// I/O.
func New(store Store, js natsjs.JetStream, cfg Config) *Service {
	if cfg.PartTimeout == 0 {
		cfg.PartTimeout = 1500 * time.Millisecond
	}
	keep := time.Duration(0)
	if store != nil {
		keep = store.Keep() + 24*time.Hour // the row that a mark is about must go first
	}
	return &Service{store: store, js: js, box: deadletters.New(js, cfg.Subjects, keep), cfg: cfg}
}

func (s *Service) operator() *deadletters.Operator {
	return &deadletters.Operator{Store: s.store, Letters: s.box, Subjects: s.cfg.Subjects}
}

// natsUp reports a connection that is not up; asking it would only wait for the timeout.
func (s *Service) natsUp() error {
	if s.js == nil {
		return errors.New(natswords.Unreachable)
	}
	return natswords.Down(s.js.Conn())
}

// seconds turns a span into a number for JSON.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
