package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

const sqlBusiness = `INSERT INTO business (customer, amount) VALUES ($1, $2)`

// A writer is one of those that commit business rows, with a connection of its own for pgx and one for database/sql.
type writer struct {
	conn *pgx.Conn
	db   *sql.Conn
}

// A transaction writes a business row and the messages from to to-1, and commits.
type transaction func(ctx context.Context, w *writer, from, to int) error

// withWriters gives do some writers that have connected. In a quick run they are two: each costs its connections.
func (st *stage) withWriters(ctx context.Context, n int, do func(all []*writer) error) (err error) {
	if st.opts.quick {
		n = min(n, 2)
	}
	db, err := st.stdDB(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var all []*writer
	for range n {
		w := &writer{}
		if w.conn, err = pgx.Connect(ctx, st.url); err != nil {
			return err
		}
		defer w.conn.Close(ctx)
		if w.db, err = db.Conn(ctx); err != nil {
			return err
		}
		defer w.db.Close()
		all = append(all, w)
	}
	return do(all)
}

// write lets all writers commit as fast as they can for some time, and returns how many messages they have committed.
// Messages from first on are theirs.
func write(ctx context.Context, all []*writer, first, perTx int, window time.Duration, tx transaction, t *tracker) (messages int, err error) {
	var next atomic.Int64
	err = inParallel(all, func(w *writer) error {
		for end := time.Now().Add(window); time.Now().Before(end); {
			to := first + int(next.Add(int64(perTx)))
			if err := tx(ctx, w, to-perTx, to); err != nil {
				return err
			}
			if t != nil {
				t.commit(to-perTx, to)
			}
		}
		return nil
	})
	return int(next.Load()), err
}

// paced lets all writers together commit perSecond transactions of one message, evenly spread.
func paced(ctx context.Context, all []*writer, perSecond int, window time.Duration, tx transaction, t *tracker) (messages int, err error) {
	gap := time.Second / time.Duration(perSecond)
	start := time.Now()
	var next atomic.Int64
	err = inParallel(all, func(w *writer) error {
		for {
			seq := int(next.Add(1) - 1)
			at := time.Duration(seq) * gap
			if at >= window {
				return nil
			}
			if err := pause(ctx, time.Until(start.Add(at))); err != nil {
				return err
			}
			if err := tx(ctx, w, seq, seq+1); err != nil {
				return err
			}
			if t != nil {
				t.commit(seq, seq+1)
			}
		}
	})
	return int((window + gap - 1) / gap), err
}

func inParallel(all []*writer, do func(w *writer) error) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, w := range all {
		group.Go(func() { errs[i] = do(w) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// bare is the transaction without a message.
func bare(ctx context.Context, w *writer, seq, _ int) error {
	return inPgx(ctx, w, seq, func(pgx.Tx) error { return nil })
}

func inPgx(ctx context.Context, w *writer, seq int, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlBusiness, keyOf(seq), seq); err != nil {
			return err
		}
		return do(tx)
	})
}

func inSQL(ctx context.Context, w *writer, seq int, do func(tx *sql.Tx) error) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has committed, or the error is known
	if _, err := tx.ExecContext(ctx, sqlBusiness, keyOf(seq), seq); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// inBatch sends BEGIN, the business row, what do adds and COMMIT in one round trip.
func inBatch(ctx context.Context, w *writer, seq int, do func(b *pgx.Batch) error) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(sqlBusiness, keyOf(seq), seq)
	if err := do(b); err != nil {
		return err
	}
	b.Queue("COMMIT")
	return w.conn.SendBatch(ctx, b).Close()
}

func envelopesOf(from, to int, opts func(seq int) []schema.Option) []schema.Envelope {
	envs := make([]schema.Envelope, 0, to-from)
	for seq := from; seq < to; seq++ {
		envs = append(envs, envelope(seq, opts(seq)...))
	}
	return envs
}

// plain gives a message no keys.
func plain(int) []schema.Option { return nil }

// withOrder gives it an ordering key, withKey an idempotency key of its own.
func withOrder(seq int) []schema.Option { return []schema.Option{ordered(seq)} }

func withKey(seq int) []schema.Option {
	return []schema.Option{schema.WithKey(keyOf(seq) + schema.NewID())}
}

// inOutbox publishes in the caller's pgx transaction. With nudge, the forwarder of this process hears of it.
func inOutbox(store *postgres.Store, nudge func(), opts func(seq int) []schema.Option) transaction {
	outbox := publishers.NewOutbox(store, publishers.Config{Nudge: nudge})
	return func(ctx context.Context, w *writer, from, to int) error {
		err := inPgx(ctx, w, from, func(tx pgx.Tx) error {
			_, err := outbox.Publish(ctx, tx, envelopesOf(from, to, opts)...)
			return err
		})
		if err == nil {
			outbox.Nudge()
		}
		return err
	}
}

// inOutboxBatch adds the messages to the caller's pgx.Batch.
func inOutboxBatch(store *postgres.Store, opts func(seq int) []schema.Option) transaction {
	return func(ctx context.Context, w *writer, from, to int) error {
		return inBatch(ctx, w, from, func(b *pgx.Batch) error {
			return store.AppendBatch(b, envelopesOf(from, to, opts), nil)
		})
	}
}

// inOutboxSQL publishes in the caller's database/sql transaction.
func inOutboxSQL(store *postgres.Store) transaction {
	outbox := publishers.NewOutbox(store.SQL(), publishers.Config{})
	return func(ctx context.Context, w *writer, from, to int) error {
		return inSQL(ctx, w, from, func(tx *sql.Tx) error {
			_, err := outbox.Publish(ctx, tx, envelopesOf(from, to, plain)...)
			return err
		})
	}
}

// inStock publishes with the stock assembly.
func inStock(ctx context.Context, w *writer, from, to int) error {
	return inSQL(ctx, w, from, func(tx *sql.Tx) error {
		msgs := make([]*message.Message, 0, to-from)
		for seq := from; seq < to; seq++ {
			msgs = append(msgs, stockMessage(seq))
		}
		return stockPublish(tx, msgs...)
	})
}

// inRiver inserts jobs.
func inRiver(client *river.Client[pgx.Tx]) transaction {
	return func(ctx context.Context, w *writer, from, to int) error {
		return inPgx(ctx, w, from, func(tx pgx.Tx) error {
			if to-from == 1 {
				_, err := client.InsertTx(ctx, tx, riverJob(from), nil)
				return err
			}
			_, err := client.InsertManyFastTx(ctx, tx, riverJobs(from, to))
			return err
		})
	}
}
