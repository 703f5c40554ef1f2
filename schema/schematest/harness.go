package schematest

import (
	"context"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Store is the methods that all stores have. Tx is the transaction of the store's database driver.
type Store[Tx any] interface {
	MigrateUp(ctx context.Context) (from, to int, err error)
	MigrateDown(ctx context.Context, force bool) error
	SchemaVersion(ctx context.Context) (have, want int, err error)
	Check(ctx context.Context) error
	Info(ctx context.Context) (schema.OutboxInfo, error)
	SetMaxPayload(ctx context.Context, bytes int) error
	NewOutbox(ctx context.Context) (id string, err error)

	InTx(ctx context.Context, fn func(tx Tx) error) error
	Unit(ctx context.Context, fn func(schema.Unit) error) error
	Append(ctx context.Context, tx Tx, envs []schema.Envelope) ([]schema.Receipt, error)
	Cancel(ctx context.Context, tx Tx, id string) error
	Reschedule(ctx context.Context, tx Tx, id string, at time.Time) error

	Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error)
	Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (schema.Shard, bool, error)
	Renew(ctx context.Context, tokens []string, ttl time.Duration) (held []string, err error)
	Release(ctx context.Context, token string) error
	KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error)
	Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error)
	Park(ctx context.Context, p schema.ParkParams) error
	Tend(ctx context.Context, limit int) (schema.TendResult, error)

	Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error)
	ClaimTx(ctx context.Context, tx Tx, run schema.Run) (schema.ClaimResult, error)
	Done(ctx context.Context, run schema.Run) error
	Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error)
	Free(ctx context.Context, run schema.Run) error
	Extend(ctx context.Context, runs []schema.Run, lease time.Duration) (held []string, err error)
	LookupInbox(ctx context.Context, key schema.InboxKey) (schema.InboxRecord, bool, error)
	InboxByMessage(ctx context.Context, messageID string) ([]schema.InboxRecord, error)
	ResetForReplay(ctx context.Context, tx Tx, key schema.InboxKey, from int) (bool, error)
	Drop(ctx context.Context, tx Tx, key schema.InboxKey, from int) (bool, error)
	InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error)

	Keep() time.Duration
	Settled(ctx context.Context, run schema.Run) error
	Accounts(ctx context.Context, p schema.AccountsParams) (schema.Accounts, error)
	Accept(ctx context.Context, stream schema.Stream, n int64) error
	Unplaced(ctx context.Context, messageIDs []string) ([]string, error)
	DeadRecords(ctx context.Context, after []byte, limit int) ([]schema.DeadRecord, error)
	PublishedKeys(ctx context.Context, after []byte, limit int) ([]schema.PublishedKey, error)
	KnownKeys(ctx context.Context, hashes [][32]byte) (map[[32]byte]bool, error)

	Take(ctx context.Context, name string, every time.Duration, n int) (wait time.Duration, err error)
	Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error)
	LetGo(ctx context.Context, name, owner string) error
	Circuits(ctx context.Context) ([]schema.Circuit, error)
	CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (schema.Circuit, error)
	CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error)
	CircuitClosed(ctx context.Context, handler string) error
	DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error)
	EnableHandler(ctx context.Context, handler string) (c schema.Circuit, changed bool, err error)
	Durability(ctx context.Context) (level schema.Durability, weak string, err error)
	Sagas(ctx context.Context, f schema.SagaFilter) ([]schema.SagaRecord, error)
	Saga(ctx context.Context, saga, id string) (rec schema.SagaRecord, found bool, err error)
	SagaHistory(ctx context.Context, saga, id string) ([]schema.SagaEvent, error)

	Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error)
	Backlogs(ctx context.Context) ([]schema.Backlog, error)
	ListOutbox(ctx context.Context, f schema.RowFilter) ([]schema.Row, error)
	ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error)
	ListParked(ctx context.Context, f schema.RowFilter) ([]schema.ParkedRow, error)
	ReleaseParked(ctx context.Context, name schema.RowName) (n int, err error)
	DropParked(ctx context.Context, name schema.RowName) error
}

// A Reader reads one shard of the outbox.
type Reader interface {
	Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error)
	Reset()
	Look(p schema.ReadParams) schema.Look
}

// A Harness is a store on a fresh database that is not migrated, and what the suite must do around it. Only
// Leases and Concurrent may be left out.
type Harness[Tx any] struct {
	Store  Store[Tx]
	Reader func(ref schema.ShardRef, shards int) Reader

	// Another returns a store on the same database as another process has it.
	Another func() Store[Tx]

	// Order writes a row of a business table in the transaction, and Orders counts them; the harness makes the table.
	Order  func(ctx context.Context, tx Tx, n int) error
	Orders func(ctx context.Context) (int, error)

	// Age makes everything in the tables d older: what was due in d is due now.
	Age func(ctx context.Context, d time.Duration) error
	// SetVersion makes the tables look as if another version of Millbridge had migrated them.
	SetVersion func(ctx context.Context, version int) error

	Leases     bool // shards have leases
	Concurrent bool // several transactions can write at the same time
}

// An Opener returns a harness on a fresh database and has it cleaned up when the test ends.
type Opener[Tx any] func(t *testing.T) Harness[Tx]

// Run runs the suite.
func Run[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("migrations", func(t *testing.T) { testMigrations(t, open) })
	t.Run("append", func(t *testing.T) { testAppend(t, open) })
	t.Run("keys", func(t *testing.T) { testKeys(t, open) })
	t.Run("scheduled", func(t *testing.T) { testScheduled(t, open) })
	t.Run("reader", func(t *testing.T) { testReader(t, open) })
	t.Run("shards", func(t *testing.T) { testShards(t, open) })
	t.Run("remove", func(t *testing.T) { testRemove(t, open) })
	t.Run("parked", func(t *testing.T) { testParked(t, open) })
	t.Run("inbox", func(t *testing.T) { testInbox(t, open) })
	t.Run("inbox model", func(t *testing.T) { testInboxModel(t, open) })
	t.Run("sagas", func(t *testing.T) { testSagas(t, open) })
	t.Run("rates", func(t *testing.T) { testRates(t, open) })
	t.Run("held leases", func(t *testing.T) { testHold(t, open) })
	t.Run("circuits", func(t *testing.T) { testCircuits(t, open) })
	t.Run("disabled handlers", func(t *testing.T) { testDisabled(t, open) })
	t.Run("tend", func(t *testing.T) { testTend(t, open) })
	t.Run("accounts", func(t *testing.T) { testAccounts(t, open) })
	t.Run("operators", func(t *testing.T) { testOperators(t, open) })
	t.Run("times", func(t *testing.T) { testTimes(t, open) })
}
