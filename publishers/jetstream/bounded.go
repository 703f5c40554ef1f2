package jetstream

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// leastPatience is how long any question to the database may take, however short leases are.
const leastPatience = 5 * time.Second

// bounded is a store whose answers are waited for only so long: a database that is silent, as when the network drops
// its packets, must not keep a shard waiting for ever. Whatever was asked may have been done all the same.
type bounded struct {
	Store
	limit time.Duration
}

func (b bounded) Info(ctx context.Context) (schema.OutboxInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Info(ctx)
}

func (b bounded) Shards(ctx context.Context, stream schema.Stream) ([]schema.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Shards(ctx, stream)
}

func (b bounded) Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (schema.Shard, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Acquire(ctx, ref, token, ttl)
}

func (b bounded) KnownOwner(ctx context.Context, ref schema.ShardRef, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.KnownOwner(ctx, ref, token)
}

func (b bounded) Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Peek(ctx, looks)
}

func (b bounded) Tend(ctx context.Context, limit int) (schema.TendResult, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Tend(ctx, limit)
}

func (b bounded) NewReader(ref schema.ShardRef, shards int) Reader {
	return boundedReader{b.Store.NewReader(ref, shards), b.limit}
}

type boundedReader struct {
	Reader
	limit time.Duration
}

func (r boundedReader) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	return r.Reader.Read(ctx, p)
}
