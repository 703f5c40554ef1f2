package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A database is what the shop needs of either store.
type database interface {
	// sell writes a row and messages in one transaction, and commits it or rolls it back. It returns how many of the
	// messages are new: the others had a key that was used before.
	sell(ctx context.Context, order string, envs []schema.Envelope, commit bool) (int, error)
	// effect notes in the transaction of the handler that is running that it has had its effect, and publishes.
	effect(ctx context.Context, handler, id string, out ...schema.Envelope) error
	router() router.Store
	close()
}

const insertOrder = `INSERT INTO shop_orders (id) VALUES ($1)`

func openDatabase(ctx context.Context, o options) (database, error) {
	if o.database != "" {
		pool, err := pgxpool.New(ctx, o.database)
		if err != nil {
			return nil, err
		}
		store := postgres.New(pool, postgres.Options{Logger: slog.Default()})
		return &pgShop{pool, store, publishers.NewOutbox(store, publishers.Config{}), proof.OnPostgres(pool)}, nil
	}
	db, err := embedded.OpenSQLite(ctx, filepath.Join(o.dir, "millbridge.db"))
	if err != nil {
		return nil, err
	}
	store := sqlite.New(db.Write, db.Read, sqlite.Options{Logger: slog.Default()})
	return newLiteShop(db.Write, store, func() { db.Close() }), nil
}

// openBridge opens a database and a connection to the server, which need not be up yet.
func openBridge(ctx context.Context, o options) (database, *nats.Conn, error) {
	if o.database != "" {
		db, err := openDatabase(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		conn, err := nats.Connect(o.nats, jetstream.ConnectOptions()...)
		return db, conn, err
	}
	in, err := embedded.Attach(ctx, o.dir, embedded.Options{Logger: slog.Default()})
	for err != nil && ctx.Err() == nil { // nobody runs the directory at this moment
		<-time.After(50 * time.Millisecond)
		in, err = embedded.Attach(ctx, o.dir, embedded.Options{Logger: slog.Default()})
	}
	if err != nil {
		return nil, nil, err
	}
	return newLiteShop(in.DB.Write, in.Store, func() { in.Close() }), in.Conn(), nil
}

type pgShop struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	outbox *publishers.Outbox[pgx.Tx]
	book   *proof.Book
}

func (s *pgShop) router() router.Store { return s.store }

func (s *pgShop) close() { s.pool.Close() }

func (s *pgShop) sell(ctx context.Context, order string, envs []schema.Envelope, commit bool) (int, error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.Exec(ctx, insertOrder, order); err != nil {
		return 0, err
	}
	receipts, err := s.outbox.Publish(ctx, tx, envs...)
	if err != nil {
		return 0, err
	}
	envs = fresh(envs, receipts)
	if err := s.book.EnterPostgres(ctx, tx, envs...); err != nil || !commit {
		return 0, err
	}
	killpoint.At(killpoint.ProducerBeforeCommit)
	err = tx.Commit(ctx)
	killpoint.At(killpoint.ProducerAfterCommit)
	return len(envs), err
}

func (s *pgShop) effect(ctx context.Context, handler, id string, out ...schema.Envelope) error {
	tx, err := handlers.Tx[pgx.Tx](ctx)
	if err != nil {
		return err
	}
	killpoint.At(killpoint.BeforeEffect)
	if err := s.book.EffectPostgres(ctx, tx, handler, handlers.Key(ctx), id); err != nil {
		return err
	}
	if _, err := s.outbox.Publish(ctx, tx, out...); err != nil {
		return err
	}
	err = s.book.EnterPostgres(ctx, tx, out...)
	killpoint.At(killpoint.AfterEffect)
	return err
}

type liteShop struct {
	db     *sql.DB
	store  *sqlite.Store
	outbox *publishers.Outbox[*sql.Tx]
	book   *proof.Book
	end    func()
}

func newLiteShop(db *sql.DB, store *sqlite.Store, end func()) *liteShop {
	return &liteShop{db, store, publishers.NewOutbox(store, publishers.Config{}), proof.OnSQLite(db, db), end}
}

func (s *liteShop) router() router.Store { return s.store }

func (s *liteShop) close() { s.end() }

func (s *liteShop) sell(ctx context.Context, order string, envs []schema.Envelope, commit bool) (int, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, insertOrder, order); err != nil {
		return 0, err
	}
	receipts, err := s.outbox.Publish(ctx, tx, envs...)
	if err != nil {
		return 0, err
	}
	envs = fresh(envs, receipts)
	if err := s.book.EnterSQLite(ctx, tx, envs...); err != nil || !commit {
		return 0, err
	}
	killpoint.At(killpoint.ProducerBeforeCommit)
	err = tx.Commit()
	killpoint.At(killpoint.ProducerAfterCommit)
	return len(envs), err
}

func (s *liteShop) effect(ctx context.Context, handler, id string, out ...schema.Envelope) error {
	tx, err := handlers.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	killpoint.At(killpoint.BeforeEffect)
	if err := s.book.EffectSQLite(ctx, tx, handler, handlers.Key(ctx), id); err != nil {
		return err
	}
	if _, err := s.outbox.Publish(ctx, tx, out...); err != nil {
		return err
	}
	err = s.book.EnterSQLite(ctx, tx, out...)
	killpoint.At(killpoint.AfterEffect)
	return err
}

// fresh leaves out the messages that stand for earlier ones.
func fresh(envs []schema.Envelope, receipts []schema.Receipt) []schema.Envelope {
	var kept []schema.Envelope
	for i, r := range receipts {
		if !r.Existing {
			if r.ID != envs[i].ID {
				fatal(fmt.Errorf("the receipt of %s says %s", envs[i].ID, r.ID))
			}
			kept = append(kept, envs[i])
		}
	}
	return kept
}
