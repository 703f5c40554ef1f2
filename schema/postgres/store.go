package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultKeep is how long idempotency keys and finished inbox rows are kept unless [Options] say otherwise.
const DefaultKeep = 30 * 24 * time.Hour

// Options are the rarely changed settings of a [Store]. The zero value works.
type Options struct {
	// Logger gets what the store does on its own. Default: nothing is logged.
	Logger *slog.Logger
	// Keep is how long idempotency keys and finished inbox rows are kept. It must be longer than a message can take
	// from its publishing to its last redelivery or replay. Default: [DefaultKeep].
	Keep time.Duration
}

// A Store reads and writes Millbridge's tables in one database. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	keep    time.Duration
	limit   payloadLimit
	horizon *horizon

	reconnected atomic.Int64 // when the pool was told to, last
}

// New returns a store on the database that pool connects to. It does no I/O. No method holds one connection while it
// waits for another, so a pool of one connection is enough for correctness.
func New(pool *pgxpool.Pool, opts Options) *Store {
	s := &Store{pool: pool, log: opts.Logger, keep: opts.Keep, horizon: newHorizon()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.keep <= 0 {
		s.keep = DefaultKeep
	}
	return s
}

// Close ends the use of the store. The pool stays open: it belongs to the caller.
func (s *Store) Close() {}

// InTx runs fn in a transaction of its own at READ COMMITTED and commits it. It rolls back when fn returns an error or
// panics. An error that is [schema.ErrUnavailable] says that the database is to blame for it.
func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return s.failed("begin transaction", err)
	}
	defer rollback(ctx, tx)
	if err := fn(tx); err != nil {
		return s.broken(ctx, tx, err)
	}
	return s.failed("commit transaction", tx.Commit(ctx))
}
