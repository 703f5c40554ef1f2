package postgres

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// sqlGroup is a subject's target (jobs), handler (replays) or name (events).
const sqlGroup = `CASE split_part(subject, '.', 1) WHEN 'events'
	THEN substr(subject, length(split_part(subject, '.', 2)) + 9) ELSE split_part(subject, '.', 2) END`

// Backlogs counts the rows that wait, by place, stream and destination.
func (s *Store) Backlogs(ctx context.Context) ([]schema.Backlog, error) {
	var all []schema.Backlog
	part := func(where, since string) string {
		return `SELECT '` + where + `', stream, ` + sqlGroup + ` AS grp, count(*),
			(extract(epoch FROM clock_timestamp() - min(` + since + `)) * 1000000)::bigint
			FROM millbridge.` + where + ` GROUP BY stream, grp`
	}
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: part("outbox", "created_at") + ` UNION ALL ` + part("scheduled", "created_at") + ` UNION ALL ` +
			part("parked", "created_at") + ` ORDER BY 1, 2, 3`,
		each: func(rows rowSet) error {
			var b schema.Backlog
			var stream string
			var age int64
			if err := rows.Scan(&b.Where, &stream, &b.Group, &b.Rows, &age); err != nil {
				return err
			}
			b.Stream, b.Oldest = schema.Stream(stream), max(0, time.Duration(age)*time.Microsecond)
			all = append(all, b)
			return nil
		},
	})
	return all, wrap("count backlog", err)
}

const defaultList = 100

// sqlFilter selects by a [schema.RowFilter]; filterArgs gives its parameters.
const sqlFilter = ` WHERE ($1::text = '' OR stream = $1::text)
	  AND ($2::text = '' OR ` + sqlGroup + ` = $2::text)
	  AND ($3::text = '' OR id = nullif($4::text, '')::uuid)
	  AND seq > $5::bigint ORDER BY seq, id LIMIT $6::bigint`

func filterArgs(f schema.RowFilter) []any {
	limit, id := f.Limit, ""
	if limit <= 0 {
		limit = defaultList
	}
	if f.ID != "" {
		id = schema.RowID(f.ID).String()
	}
	return []any{string(f.Stream), f.Group, f.ID, id, f.After, limit}
}

const rowColumns = `seq, id, stream, slot, subject, coalesce(order_lock, 0), header, payload, created_at`

// scanRow reads rowColumns and what comes after them.
func scanRow(rows rowSet, more ...any) (schema.Row, error) {
	var r schema.Row
	var stream string
	var slot int32
	err := rows.Scan(append([]any{
		&r.Seq, (*[16]byte)(&r.ID), &stream, &slot, &r.Subject, &r.OrderLock, &r.Header, &r.Payload, &r.CreatedAt,
	}, more...)...)
	r.Stream, r.Slot, r.CreatedAt = schema.Stream(stream), uint16(slot), r.CreatedAt.UTC()
	return r, err
}

// ListOutbox lists messages that are not yet in their stream.
func (s *Store) ListOutbox(ctx context.Context, f schema.RowFilter) ([]schema.Row, error) {
	var list []schema.Row
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT ` + rowColumns + ` FROM millbridge.outbox` + sqlFilter, args: filterArgs(f),
		each: func(rows rowSet) error {
			r, err := scanRow(rows)
			list = append(list, r)
			return err
		},
	})
	return list, wrap("list outbox", err)
}

// ListScheduled lists messages that wait for their time, in the order in which they were published.
func (s *Store) ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error) {
	var list []schema.ScheduledRow
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT ` + rowColumns + `, due_at FROM millbridge.scheduled` + sqlFilter, args: filterArgs(f),
		each: func(rows rowSet) error {
			var r schema.ScheduledRow
			row, err := scanRow(rows, &r.DueAt)
			r.Row, r.DueAt = row, r.DueAt.UTC()
			list = append(list, r)
			return err
		},
	})
	return list, wrap("list scheduled messages", err)
}

// ListParked lists rows that can never be forwarded and those that wait behind them.
func (s *Store) ListParked(ctx context.Context, f schema.RowFilter) ([]schema.ParkedRow, error) {
	var list []schema.ParkedRow
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT ` + rowColumns + `, reason, behind, parked_at FROM millbridge.parked` + sqlFilter, args: filterArgs(f),
		each: func(rows rowSet) error {
			var r schema.ParkedRow
			row, err := scanRow(rows, &r.Reason, &r.Behind, &r.ParkedAt)
			r.Row, r.ParkedAt = row, r.ParkedAt.UTC()
			list = append(list, r)
			return err
		},
	})
	return list, wrap("list parked messages", err)
}
