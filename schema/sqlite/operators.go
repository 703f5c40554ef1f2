package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// groupOf is the target of a job, the handler of a replay or the name of an event, cut out of the subject.
const groupOf = `CASE stream WHEN 'events'
	THEN substr(subject, 8 + instr(substr(subject, 8), '.'))
	ELSE substr(subject, instr(subject, '.') + 1, instr(substr(subject, instr(subject, '.') + 1), '.') - 1) END`

// Backlogs counts the rows that wait in outbox, scheduled and parked. It reads waiting rows only.
func (s *Store) Backlogs(ctx context.Context) ([]schema.Backlog, error) {
	now := s.now()
	var parts []string
	for _, table := range [...]string{"outbox", "scheduled", "parked"} {
		parts = append(parts, "SELECT '"+table+"', stream, "+groupOf+" AS target, count(*), min(created_at) FROM millbridge_"+table+" GROUP BY stream, target")
	}
	backlogs, err := collect(ctx, s.read, func(rows *sql.Rows, b *schema.Backlog) error {
		var oldest int64
		err := rows.Scan(&b.Where, &b.Stream, &b.Group, &b.Rows, &oldest)
		b.Oldest = time.Duration(max(now-oldest, 0))
		return err
	}, strings.Join(parts, " UNION ALL "))
	return backlogs, wrap("count backlogs", err)
}

// ListOutbox returns rows that are not yet in their stream, oldest first.
func (s *Store) ListOutbox(ctx context.Context, f schema.RowFilter) ([]schema.Row, error) {
	where, args := filter(f)
	rows, err := collect(ctx, s.read, func(rows *sql.Rows, r *schema.Row) error { return scanRow(rows, r) },
		"SELECT seq, "+rowColumns+" FROM millbridge_outbox"+where, args...)
	return rows, wrap("list outbox", err)
}

// ListScheduled returns messages that wait for their time, in the order in which they were published.
func (s *Store) ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error) {
	where, args := filter(f)
	rows, err := collect(ctx, s.read, func(rows *sql.Rows, r *schema.ScheduledRow) error {
		var due int64
		err := scanRow(rows, &r.Row, &due)
		r.DueAt = at(due)
		return err
	}, "SELECT seq, "+rowColumns+", due_at FROM millbridge_scheduled"+where, args...)
	return rows, wrap("list scheduled", err)
}

// ListParked returns parked rows in the order they had in the outbox.
func (s *Store) ListParked(ctx context.Context, f schema.RowFilter) ([]schema.ParkedRow, error) {
	where, args := filter(f)
	rows, err := collect(ctx, s.read, func(rows *sql.Rows, r *schema.ParkedRow) error {
		var parked int64
		err := scanRow(rows, &r.Row, &r.Reason, &r.Behind, &parked)
		r.ParkedAt = at(parked)
		return err
	}, "SELECT seq, "+rowColumns+", reason, behind, parked_at FROM millbridge_parked"+where, args...)
	return rows, wrap("list parked", err)
}

func filter(f schema.RowFilter) (where string, args []any) {
	where, args = " WHERE seq > ?", []any{f.After}
	if f.Stream != "" {
		where, args = where+" AND stream = ?", append(args, string(f.Stream))
	}
	if f.Group != "" {
		where, args = where+" AND "+groupOf+" = ?", append(args, f.Group)
	}
	if f.ID != "" {
		id := schema.RowID(f.ID)
		where, args = where+" AND id = ?", append(args, id[:])
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	return where + " ORDER BY seq LIMIT ?", append(args, f.Limit)
}
