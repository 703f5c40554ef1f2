package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/millbridge/millbridge/schema"
)

const (
	stockWindow = 50_000           // rows of which one look takes the numbers
	stockRows   = 1_000            // rows of one transaction
	stockBytes  = 4 << 20          // and their envelopes' bytes; one at least
	stockMost   = 64 << 20         // a longer envelope holds no message that we take, whatever the limit
	stockRelook = 10 * time.Second // how often a look begins at the stock forwarder's position again
	stockWait   = "3s"             // for the stock forwarder to end its batch
	codeNoLock  = "55P03"          // lock_not_available
)

// A stockKey names a row.
type stockKey struct{ tx, offset int64 }

// A window is what a look has found, in the order in which it is moved, and where the next look begins.
type window struct {
	keys  []stockKey
	full  bool  // there may be more
	whole bool  // nothing of it has been left for later
	xmin  int64 // all transactions below had ended before the look
	floor int64 // the next look needs no transactions below
	since time.Time
}

// What a move gives way to.
var (
	errMoving = errors.New("another process moves the rows")
	errSends  = errors.New("the stock forwarder holds its position: it sends, or cannot go on")
	errLocked = errors.New("somebody has rows of the table locked")
)

// Feed moves some messages, each exactly once: in one transaction they leave their table and enter the outbox.
//
// Rows are taken as soon as they are committed, by offset. Whoever writes a message after having seen another one's commit
// has the higher offset, so that this is an order that publishers have made themselves sure of, if any; transaction ids are
// not, for a transaction may have its id long before it writes. Late commits, with lower offsets, come with the next look.
//
// What the stock forwarder has acknowledged is left alone. Its position is locked as the stock forwarder locks it, and is
// written, unchanged, so that one that has read its rows before must begin anew.
func (m *Stock) Feed(ctx context.Context) (schema.FeedResult, error) {
	res, err := m.feed(ctx)
	if err == nil {
		return res, nil
	}
	if noLock(err) {
		err = errLocked
	}
	for _, way := range []error{errMoving, errSends, errLocked} {
		if errors.Is(err, way) {
			m.window.keys = nil
			return schema.FeedResult{Waits: way.Error()}, nil
		}
	}
	m.ready, m.window = false, window{}
	return schema.FeedResult{}, err
}

// noLock reports whether a lock was waited for in vain.
func noLock(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == codeNoLock
}

func (m *Stock) feed(ctx context.Context) (schema.FeedResult, error) {
	if !m.ready {
		if err := m.prepare(ctx); err != nil {
			return schema.FeedResult{}, err
		}
	}
	w := &m.window
	if len(w.keys) == 0 {
		if err := m.look(ctx); err != nil || len(w.keys) == 0 {
			return schema.FeedResult{}, err
		}
	}
	limit, err := m.s.maxPayload(ctx, pgxRunner{m.s.pool})
	if err != nil {
		return schema.FeedResult{}, err
	}
	var b stockBatch
	err = m.s.InTx(ctx, func(tx pgx.Tx) error {
		b = stockBatch{m: m, tx: tx, limit: limit}
		return b.move(ctx, w.keys[:min(len(w.keys), stockRows)])
	})
	if err != nil {
		return schema.FeedResult{}, err
	}
	w.keys = w.keys[b.taken:]
	w.whole = w.whole && !b.skipped
	if len(w.keys) == 0 && w.whole && !w.full {
		w.floor = max(w.floor, w.xmin)
	}
	if len(b.left) > 0 {
		m.s.log.WarnContext(ctx, "rows of a stock outbox cannot be moved and stay where they are", "topic", m.t.Topic,
			"rows", len(b.left), "first_offset", b.left[0].Offset, "reason", b.left[0].Reason)
	}
	return schema.FeedResult{Moved: b.moved, Left: len(b.left), More: len(w.keys) > 0 || w.full && b.moved+len(b.left) > 0}, nil
}

// look finds out which rows there are to move.
func (m *Stock) look(ctx context.Context) error {
	w := &m.window
	if time.Since(w.since) > stockRelook { // rows that somebody has written with old transaction ids
		w.floor, w.since = 0, time.Now()
	}
	var p position
	w.keys, w.whole = nil, true
	err := pgxRunner{m.s.pool}.run(ctx, byIndex,
		statement{
			sql:  `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`,
			each: scan(&w.xmin),
		},
		statement{sql: m.sqlPosition(), args: []any{m.t.Group}, each: p.scan},
		statement{
			sql: `WITH p AS MATERIALIZED (SELECT last_processed_transaction_id AS tx, coalesce(offset_acked, 0) AS acked FROM ` + m.groups + ` WHERE consumer_group = $1::text)
				SELECT m.transaction_id::text::bigint, m."offset" FROM ` + m.rows + ` AS m
				 WHERE m.transaction_id >= $2::text::xid8 AND ` + m.sqlPending(`(SELECT tx FROM p)`, `(SELECT acked FROM p)`, `$3`) + `
				 ORDER BY m."offset" LIMIT $4::bigint`,
			args: []any{m.t.Group, strconv.FormatInt(w.floor, 10), m.t.Topic, m.most},
			each: func(rows rowSet) error {
				var k stockKey
				err := rows.Scan(&k.tx, &k.offset)
				w.keys = append(w.keys, k)
				return err
			},
		})
	if err != nil {
		return m.s.failed("look for rows in stock outbox", err)
	}
	w.full = len(w.keys) == m.most
	if len(w.keys) == 0 {
		w.floor = max(w.floor, w.xmin)
	}
	return m.checkFound(p)
}

func (m *Stock) checkFound(p position) error {
	if !p.found {
		return m.fault("it was there before; name the group of the stock forwarder (stock.consumer_group)", "table %s has lost consumer group %q", m.groups, m.t.Group)
	}
	return m.check(p)
}

// A stockBatch is what one transaction moves.
type stockBatch struct {
	m     *Stock
	tx    pgx.Tx
	limit int // bytes of a payload

	taken   int // of the keys that were wanted
	moved   int
	left    []schema.StockLeft
	skipped bool // a writer holds the ordering key of some
}

func (b *stockBatch) move(ctx context.Context, keys []stockKey) error {
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	found, err := b.read(ctx, keys, p)
	if err != nil {
		return wrap("read stock outbox", err)
	}
	a, from := b.decode(found)
	if a, from, err = b.free(ctx, a, from); err != nil {
		return wrap("lock ordering keys", err)
	}
	if len(a.rows) > 0 {
		if err := (pgxRunner{b.tx}).run(ctx, a.statements()...); err != nil {
			return wrap("write to outbox", err)
		}
		if err := b.remove(ctx, from); err != nil {
			return wrap("remove from stock outbox", err)
		}
	}
	b.moved = len(a.rows)
	return wrap("note rows that are left", b.note(ctx))
}

// enter makes this the only one who moves, and keeps the stock forwarder out until the transaction ends. A stock forwarder
// reads at REPEATABLE READ: that its position was written makes it fail where its rows may be out of date.
func (b *stockBatch) enter(ctx context.Context) (p position, err error) {
	var alone bool
	err = pgxRunner{b.tx}.run(ctx,
		statement{sql: `SELECT set_config('lock_timeout', '` + stockWait + `', true)`},
		statement{sql: `SELECT pg_try_advisory_xact_lock($1::bigint)`, args: []any{b.m.lock}, each: scan(&alone)})
	switch {
	case err != nil:
		return p, wrap("enter stock outbox", err)
	case !alone:
		return p, errMoving
	}
	err = pgxRunner{b.tx}.run(ctx,
		statement{sql: `UPDATE ` + b.m.groups + ` SET offset_acked = offset_acked WHERE consumer_group = $1::text`, args: []any{b.m.t.Group}},
		statement{sql: b.m.sqlPosition(), args: []any{b.m.t.Group}, each: p.scan})
	switch {
	case noLock(err):
		return p, errSends
	case err != nil:
		return p, wrap("lock the stock forwarder's position", err)
	}
	return p, b.m.checkFound(p)
}

// A stockFound is a row as it was read.
type stockFound struct {
	schema.StockRow
	size int64
}

// read reads rows that are still there and not behind the position, in their order, until there are bytes enough.
func (b *stockBatch) read(ctx context.Context, keys []stockKey, p position) (found []stockFound, err error) {
	txs, offsets := make([]string, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		txs[i], offsets[i] = strconv.FormatInt(k.tx, 10), k.offset
	}
	b.taken = len(keys)
	last := 0
	err = pgxRunner{b.tx}.run(ctx, byIndex, statement{
		sql: `WITH wanted AS MATERIALIZED (
				SELECT n, tx::xid8 AS tx, at FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS w(tx, at, n)
			), found AS MATERIALIZED (
				SELECT w.n, m."offset", m.transaction_id, m.uuid, ` + b.m.body + ` AS body,
				       CASE WHEN isfinite(m.created_at) THEN m.created_at::timestamptz END AS created_at
				  FROM wanted AS w JOIN ` + b.m.rows + ` AS m ON m.transaction_id = w.tx AND m."offset" = w.at
				 WHERE (m.transaction_id, m."offset") > ($3::text::xid8, $4::bigint)
			), sized AS (
				SELECT *, coalesce(octet_length(body), 0) AS size, sum(coalesce(octet_length(body), 0)) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) AS total FROM found
			)
			SELECT n, "offset", transaction_id::text::bigint, uuid::text, CASE WHEN size <= $6::bigint THEN body END, size, created_at,
			       (SELECT max(n) FROM found)
			  FROM sized WHERE total <= $5::bigint OR total = size ORDER BY n`,
		args: []any{txs, offsets, strconv.FormatInt(p.tx, 10), p.offset, stockBytes, stockMost},
		each: func(rows rowSet) error {
			var f stockFound
			var n int
			var tx int64
			var at *time.Time
			err := rows.Scan(&n, &f.Offset, &tx, &f.UUID, &f.Payload, &f.size, &at, &last)
			f.Tx = uint64(tx)
			if at != nil {
				f.CreatedAt = at.UTC()
			}
			if b.taken = n; n == last {
				b.taken = len(keys) // what comes after has gone
			}
			found = append(found, f)
			return err
		},
	})
	return found, err
}

// decode sorts out what can be moved.
func (b *stockBatch) decode(found []stockFound) (a *appending, from []stockKey) {
	a = &appending{}
	for _, f := range found {
		row, e, err := b.row(f)
		if err != nil {
			b.left = append(b.left, schema.StockLeft{Offset: f.Offset, Tx: f.Tx, Reason: schema.OneLine(err.Error())})
			continue
		}
		a.envs, a.rows, from = append(a.envs, e), append(a.rows, row), append(from, stockKey{int64(f.Tx), f.Offset})
	}
	return a, from
}

func (b *stockBatch) row(f stockFound) (schema.Row, schema.Envelope, error) {
	if f.size > stockMost {
		return schema.Row{}, schema.Envelope{}, &schema.ValidationError{Faults: []schema.Fault{{
			Field: "payload", Reason: "the forwarder's envelope is too large", Length: int(f.size), Limit: stockMost,
		}}}
	}
	e, err := b.m.t.Rules.Envelope(f.StockRow)
	if err != nil {
		return schema.Row{}, e, err
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	row, err := schema.CheckedRow(e, b.limit)
	return row, e, err
}

// free leaves out messages whose ordering key a writer holds, so that they do not keep back what comes after them. They are
// there at the next look.
func (b *stockBatch) free(ctx context.Context, a *appending, from []stockKey) (*appending, []stockKey, error) {
	locks := a.locks()
	if len(locks) == 0 {
		return a, from, nil
	}
	busy := map[int64]bool{}
	err := pgxRunner{b.tx}.run(ctx, statement{
		sql: `SELECT n FROM unnest($1::bigint[]) AS n WHERE NOT pg_try_advisory_xact_lock(n)`, args: []any{locks},
		each: func(rows rowSet) error {
			var n int64
			err := rows.Scan(&n)
			busy[n] = true
			return err
		},
	})
	if err != nil || len(busy) == 0 {
		return a, from, err
	}
	b.skipped = true
	out, rest := &appending{}, from[:0]
	for i, r := range a.rows {
		if !busy[r.OrderLock] {
			out.envs, out.rows, rest = append(out.envs, a.envs[i]), append(out.rows, r), append(rest, from[i])
		}
	}
	return out, rest, nil
}

// remove deletes the rows that were moved. If one is gone, somebody else has touched the table: all is undone.
func (b *stockBatch) remove(ctx context.Context, keys []stockKey) error {
	txs, offsets := make([]string, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		txs[i], offsets[i] = strconv.FormatInt(k.tx, 10), k.offset
	}
	gone := 0
	err := pgxRunner{b.tx}.run(ctx, byIndex, statement{
		sql: `WITH gone AS (
				DELETE FROM ` + b.m.rows + ` AS m USING (SELECT tx::xid8 AS tx, at FROM unnest($1::text[], $2::bigint[]) AS w(tx, at)) AS w
				 WHERE m.transaction_id = w.tx AND m."offset" = w.at RETURNING 1)
			SELECT count(*) FROM gone`, args: []any{txs, offsets}, each: scan(&gone),
	})
	if err == nil && gone != len(keys) {
		err = schema.WithKind(schema.Temporary, fmt.Errorf("%d of %d rows are still there: somebody else deletes: %w", gone, len(keys), schema.ErrRetryTransaction))
	}
	return err
}

// note keeps rows that cannot be moved from being looked at again.
func (b *stockBatch) note(ctx context.Context) error {
	if len(b.left) == 0 {
		return nil
	}
	txs, offsets, reasons := make([]string, len(b.left)), make([]int64, len(b.left)), make([]string, len(b.left))
	for i, l := range b.left {
		txs[i], offsets[i], reasons[i] = strconv.FormatUint(l.Tx, 10), l.Offset, l.Reason
	}
	return pgxRunner{b.tx}.run(ctx, statement{sql: `
		INSERT INTO millbridge.stock_left (topic, transaction_id, "offset", reason)
		SELECT $1::text, tx::xid8, at, reason FROM unnest($2::text[], $3::bigint[], $4::text[]) AS w(tx, at, reason)
		ON CONFLICT (topic, "offset", transaction_id) DO UPDATE SET reason = excluded.reason`, args: []any{b.m.t.Topic, txs, offsets, reasons}})
}
