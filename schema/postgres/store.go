package postgres

import (
	"context"
	"log/slog"
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
// panics.
func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return wrap("begin transaction", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit it has nothing to do
	if err := fn(tx); err != nil {
		return err
	}
	return wrap("commit transaction", tx.Commit(ctx))
}
