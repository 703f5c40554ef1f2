package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema/postgres"
)

func enqueueScenario() scenario {
	mb := func(make func(store *postgres.Store) transaction) func(ctx context.Context, st *stage) (transaction, string, error) {
		return func(ctx context.Context, st *stage) (transaction, string, error) {
			store, err := st.millbridge(ctx)
			if err != nil {
				return nil, "", err
			}
			return make(store), "millbridge.outbox", nil
		}
	}
	mbThousand := func(ctx context.Context, st *stage) (transaction, string, error) {
		store, err := st.millbridge(ctx)
		if err != nil {
			return nil, "", err
		}
		return inOutbox(store, nil, plain), "millbridge.outbox", st.oneStatement(ctx, store, 1000)
	}
	stock := func(ctx context.Context, st *stage) (transaction, string, error) {
		return inStock, `"watermill_outbox"`, st.stockTables(ctx)
	}
	river := func(ctx context.Context, st *stage) (transaction, string, error) {
		if err := st.riverTables(ctx); err != nil {
			return nil, "", err
		}
		client, err := riverInserter(st.pool)
		return inRiver(client), "river_job", err
	}
	alone := func(tx transaction) func(context.Context, *stage) (transaction, string, error) {
		return func(context.Context, *stage) (transaction, string, error) { return tx, "", nil }
	}
	return scenario{
		name: "enqueue", title: fmt.Sprintf("%d connections commit a business row and its messages as fast as they can", conns),
		unit: "tx/s", per: "transaction", base: "stock publisher, database/sql",
		bases: map[string]string{
			"stock publisher, 100 messages": "stock publisher, 100 messages", "millbridge, pgx, 100 messages": "stock publisher, 100 messages",
			"river, InsertManyFast, 100 messages": "stock publisher, 100 messages",
			"stock publisher, 1,000 messages":     "stock publisher, 1,000 messages", "millbridge, pgx, 1,000 messages": "stock publisher, 1,000 messages",
		},
		contenders: []contender{
			enqueue("stock publisher, database/sql", 1, stock),
			enqueue("millbridge, pgx", 1, mb(func(s *postgres.Store) transaction { return inOutbox(s, nil, plain) })),
			enqueue("millbridge, pgx, ordering key", 1, mb(func(s *postgres.Store) transaction { return inOutbox(s, nil, withOrder) })),
			enqueue("millbridge, pgx, idempotency key", 1, mb(func(s *postgres.Store) transaction { return inOutbox(s, nil, withKey) })),
			enqueue("millbridge, in the caller's pgx.Batch", 1, mb(func(s *postgres.Store) transaction { return inOutboxBatch(s, plain) })),
			enqueue("millbridge, database/sql", 1, mb(inOutboxSQL)),
			enqueue("river, pgx", 1, river),
			enqueue("no message, pgx", 0, alone(bare)),
			enqueue("no message, pgx.Batch", 0, alone(func(ctx context.Context, w *writer, seq, _ int) error {
				return inBatch(ctx, w, seq, func(*pgx.Batch) error { return nil })
			})),
			enqueue("stock publisher, 100 messages", 100, stock),
			enqueue("millbridge, pgx, 100 messages", 100, mb(func(s *postgres.Store) transaction { return inOutbox(s, nil, plain) })),
			enqueue("river, InsertManyFast, 100 messages", 100, river),
			enqueue("stock publisher, 1,000 messages", 1000, stock),
			enqueue("millbridge, pgx, 1,000 messages", 1000, mbThousand),
		},
	}
}

// enqueue is a contender whose writers commit transactions of perTx messages, which must then be in a table.
func enqueue(name string, perTx int, prepare func(ctx context.Context, st *stage) (tx transaction, table string, err error)) contender {
	return contender{name, func(ctx context.Context, st *stage) (r result, err error) {
		tx, messages, err := prepare(ctx, st)
		if err != nil {
			return result{}, err
		}
		step, prepared := max(perTx, 1), 0 // a transaction without messages has a number all the same
		err = st.withWriters(ctx, conns, func(all []*writer) error {
			for i, w := range all { // statements are prepared at their first use
				if err := tx(ctx, w, i*step, (i+1)*step); err != nil {
					return err
				}
			}
			prepared = len(all)
			m := st.meter()
			n, err := write(ctx, all, prepared*step, step, st.opts.window, tx, nil)
			r = m.stop(n / step)
			return err
		})
		if err != nil {
			return r, err
		}
		transactions := r.Messages + prepared
		if err := st.holds(ctx, "business", transactions); err != nil || messages == "" {
			return r, err
		}
		return r, st.holds(ctx, messages, transactions*perTx)
	}}
}

// holds counts the rows of a table, and those that differ.
func (st *stage) holds(ctx context.Context, table string, want int) error {
	distinct := "id"
	if table == `"watermill_outbox"` {
		distinct = "uuid"
	}
	n, err := st.count(ctx, "SELECT count(*) FROM "+table)
	if err != nil {
		return err
	}
	different, err := st.count(ctx, "SELECT count(DISTINCT "+distinct+") FROM "+table)
	if err == nil && (n != want || different != want) {
		err = fmt.Errorf("%s has %d rows, of which %d differ, want %d", table, n, different, want)
	}
	return err
}

// A counter counts the statements of a connection, and its batches.
type counter struct{ statements, batches int }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.statements++
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.batches++
	c.statements += data.Batch.Len()
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// oneStatement proves that the outbox writes n messages with one statement, once it knows the database's settings. It
// takes them back.
func (st *stage) oneStatement(ctx context.Context, store *postgres.Store, n int) error {
	cfg, err := pgx.ParseConfig(st.url)
	if err != nil {
		return err
	}
	c := &counter{}
	cfg.Tracer = c
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for range 2 {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		*c = counter{}
		if _, err := store.Append(ctx, tx, envelopesOf(0, n, plain)); err != nil {
			return err
		}
		wrote := *c
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		if *c = wrote; c.statements == 1 {
			return nil
		}
	}
	return fmt.Errorf("%d messages are %d statements", n, c.statements)
}
