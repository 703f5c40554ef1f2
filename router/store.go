package router

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// A Store is the database of a bridge: *postgres.Store or *sqlite.Store.
type Store interface {
	Inbox

	// Check proves that the database is migrated and fit for use.
	Check(ctx context.Context) error
	// WeakSettings says what the database's settings cost where they promise less than they could.
	WeakSettings(ctx context.Context) (notes []string, err error)
	// CheckRights proves that the database lets a bridge do what it has to.
	CheckRights(ctx context.Context) error
	// MaxUnits returns how many units may stay open at the same time and still leave a connection to everything else.
	MaxUnits() int
	// Durability returns what messages survive as far as the database goes, and what keeps it from more.
	Durability(ctx context.Context) (level schema.Durability, weakest string, err error)

	// What all processes share about a handler: its rate and its circuit.
	Take(ctx context.Context, name string, every time.Duration, n int) (wait time.Duration, err error)
	Circuits(ctx context.Context) ([]schema.Circuit, error)
	CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (schema.Circuit, error)
	CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error)
	CircuitClosed(ctx context.Context, handler string) error
	DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error)

	// The leases of ordered targets.
	Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error)
	LetGo(ctx context.Context, name, owner string) error

	// What the forwarder needs.
	Info(ctx context.Context) (schema.OutboxInfo, error)
	Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error)
	Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (schema.Shard, bool, error)
	Renew(ctx context.Context, tokens []string, ttl time.Duration) (held []string, err error)
	Release(ctx context.Context, token string) error
	KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error)
	RowReader(ref schema.ShardRef, shards int) schema.RowReader
	Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error)
	Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error)
	Park(ctx context.Context, p schema.ParkParams) error
	Tend(ctx context.Context, limit int) (schema.TendResult, error)
}

// forwarderStore is a Store as the forwarder knows it.
type forwarderStore struct{ Store }

func (s forwarderStore) NewReader(ref schema.ShardRef, shards int) jetstream.Reader {
	return s.RowReader(ref, shards)
}
