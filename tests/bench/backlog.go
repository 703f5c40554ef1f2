package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema/postgres"
)

func backlogScenario() scenario {
	const undisturbed = "millbridge, undisturbed"
	return scenario{
		name: "backlog", title: "draining as in the scenario drain when much more waits, or when somebody is in the way", unit: "msg/s", base: undisturbed,
		contenders: []contender{
			{undisturbed, func(ctx context.Context, st *stage) (result, error) { return drainMillbridge(ctx, st, withOrder) }},
			{"millbridge, a large backlog", drainLarge},
			{"millbridge, an old snapshot is open, dead rows", drainWithSnapshot},
			{"millbridge, a writer stays open", drainWithWriter},
			{"stock forwarder, a large backlog, its beginning", drainStockLarge},
		},
	}
}

// drainLarge drains ten times as many messages, or what -backlog says.
func drainLarge(ctx context.Context, st *stage) (result, error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	if err := st.load(ctx, store, st.opts.backlog, withOrder); err != nil {
		return result{}, err
	}
	return st.drain(ctx, st.opts.backlog, true)
}

// drainWithSnapshot drains while a reader's old snapshot keeps all rows that were removed since, of this drain and a
// fifth of the large backlog from before.
func drainWithSnapshot(ctx context.Context, st *stage) (r result, err error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	if err := st.load(ctx, store, st.opts.backlog/5, withOrder); err != nil {
		return result{}, err
	}
	reader, err := st.open(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, reader.close(ctx)) }()
	seen := func() (n int, err error) {
		err = reader.tx.QueryRow(ctx, "SELECT count(*) FROM millbridge.outbox").Scan(&n)
		return n, err
	}
	if _, err := seen(); err != nil {
		return result{}, err
	}
	if _, err := st.pool.Exec(ctx, "DELETE FROM millbridge.outbox"); err != nil {
		return result{}, err
	}
	n := st.opts.messages
	if err := st.load(ctx, store, n, withOrder); err != nil {
		return result{}, err
	}
	if r, err = st.drain(ctx, n, true); err != nil {
		return r, err
	}
	if kept, err := seen(); err != nil || kept != st.opts.backlog/5 {
		return r, errors.Join(err, fmt.Errorf("the old snapshot sees %d rows, want %d", kept, st.opts.backlog/5))
	}
	return r, nil
}

// drainWithWriter drains while a transaction that has put a message into the outbox before all others stays open. When
// it commits, its message must come too.
func drainWithWriter(ctx context.Context, st *stage) (r result, err error) {
	store, err := st.millbridge(ctx)
	if err != nil {
		return result{}, err
	}
	writer, err := st.open(ctx, pgx.TxOptions{})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, writer.close(ctx)) }()
	n := st.opts.messages
	if _, err := store.Append(ctx, writer.tx, envelopesOf(n, n+1, plain)); err != nil {
		return result{}, err
	}
	if err := st.load(ctx, store, n, withOrder); err != nil {
		return result{}, err
	}
	if r, err = st.drain(ctx, n, true); err != nil {
		return r, err
	}
	if err := writer.tx.Commit(ctx); err != nil {
		return r, err
	}
	if _, err := st.forward(ctx, order{Messages: 1}, st.outboxEmpty); err != nil {
		return r, fmt.Errorf("when the writer has committed: %w", err)
	}
	return r, checkStream(ctx, st.js, jobStream, jobSubject, n+1, true)
}

// An openTransaction has a connection of its own.
type openTransaction struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

func (st *stage) open(ctx context.Context, opts pgx.TxOptions) (*openTransaction, error) {
	conn, err := pgx.Connect(ctx, st.url)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return &openTransaction{conn, tx}, nil
}

func (o *openTransaction) close(ctx context.Context) error {
	err := o.tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = nil
	}
	return errors.Join(err, o.conn.Close(ctx))
}

// drainStockLarge measures the first seconds of a drain that would take hours.
func drainStockLarge(ctx context.Context, st *stage) (r result, err error) {
	if err := st.stockTables(ctx); err != nil {
		return result{}, err
	}
	if err := st.stockLoad(ctx, st.opts.backlog); err != nil {
		return result{}, err
	}
	if st.opts.backlog < stockBatches {
		return result{}, fmt.Errorf("a large backlog is at least %d messages", stockBatches)
	}
	r, err = st.forward(ctx, order{Stock: true, Messages: st.opts.backlog, Limit: max(5*st.opts.window, 200*time.Millisecond)},
		func(context.Context) error { return nil })
	if err != nil {
		return r, err
	}
	// The process was ended between two messages.
	stream, err := st.js.Stream(ctx, stockStream)
	if err != nil {
		return r, err
	}
	stored := int(stream.CachedInfo().State.Msgs)
	if stored < r.Messages {
		return r, fmt.Errorf("the stock forwarder counts %d messages, the stream has %d", r.Messages, stored)
	}
	return r, checkStream(ctx, st.js, stockStream, stockStream, stored, true)
}

// growthScenario shows what the size of messages and the number of shards cost.
func growthScenario() scenario {
	const base = "256 bytes, 6 metadata entries, 2 shards"
	of := func(name string, w work, shards, share int) contender {
		return contender{name, func(ctx context.Context, st *stage) (result, error) {
			store, err := st.millbridge(ctx)
			if err != nil {
				return result{}, err
			}
			if err := st.setShards(ctx, store, shards); err != nil {
				return result{}, err
			}
			st.work = w
			n := max(st.opts.messages/share, 10)
			if err := st.load(ctx, store, n, withOrder); err != nil {
				return result{}, err
			}
			return st.drain(ctx, n, true)
		}}
	}
	return scenario{
		name: "growth", title: "draining fewer messages of another size, or on another number of shards", unit: "msg/s", base: base,
		contenders: []contender{
			of(base, usual, 2, 4),
			of("4 KiB", work{payload: 4 << 10, metadata: 6}, 2, 8),
			of("64 KiB", work{payload: 64 << 10, metadata: 6}, 2, 50),
			of("no metadata", work{payload: 256}, 2, 4),
			of("32 metadata entries", work{payload: 256, metadata: 32}, 2, 4),
			of("1 shard", usual, 1, 4),
			of("4 shards", usual, 4, 4),
		},
	}
}

// setShards changes the number of shards of a stream that has never been written to.
func (st *stage) setShards(ctx context.Context, store *postgres.Store, n int) error {
	return store.InTx(ctx, func(tx pgx.Tx) error {
		for _, q := range []string{
			"UPDATE millbridge.meta SET jobs_shards = $1",
			"DELETE FROM millbridge.shards WHERE stream = 'jobs' AND shard >= $1",
			`INSERT INTO millbridge.shards (stream, generation, shard)
			 SELECT 'jobs', 1, shard FROM generate_series(0, $1::integer - 1) AS shard ON CONFLICT DO NOTHING`,
		} {
			if _, err := tx.Exec(ctx, q, n); err != nil {
				return fmt.Errorf("set the number of shards: %w", err)
			}
		}
		return nil
	})
}
