package jetstream

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Store is what the forwarder needs of a database; [StoreOf] makes one of a store of the schema packages.
type Store interface {
	backend
	// NewReader returns a reader of one shard's rows, used by one goroutine.
	NewReader(ref schema.ShardRef, shards int) Reader
}

// Reader reads the rows of one shard that are safe to send.
type Reader interface {
	Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error)
	// Reset makes the next read start from the shard's first row.
	Reset()
	// Look returns what the reader knows before such a read, for the store's Peek.
	Look(p schema.ReadParams) schema.Look
}

// backend is what both stores have and needs no adapting.
type backend interface {
	Info(ctx context.Context) (schema.OutboxInfo, error)
	Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error)
	Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (schema.Shard, bool, error)
	Renew(ctx context.Context, tokens []string, ttl time.Duration) (held []string, err error)
	Release(ctx context.Context, token string) error
	KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error)
	// Peek tells for each look whether its reader may find something, and perhaps what. It may say yes for nothing, not no
	// for something.
	Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error)
	Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error)
	Park(ctx context.Context, p schema.ParkParams) error
	Tend(ctx context.Context, limit int) (schema.TendResult, error)
}

// StoreOf adapts a store of schema/postgres or schema/sqlite, whose readers have types of their own.
func StoreOf[R Reader](s interface {
	backend
	NewReader(ref schema.ShardRef, shards int) R
},
) Store {
	return adapted[R]{s, s.NewReader}
}

type adapted[R Reader] struct {
	backend
	newReader func(schema.ShardRef, int) R
}

func (a adapted[R]) NewReader(ref schema.ShardRef, shards int) Reader {
	return a.newReader(ref, shards)
}
