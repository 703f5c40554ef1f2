package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Cancel deletes a scheduled message in the caller's transaction. Its idempotency key is free again. A message that
// has moved on gives [schema.ErrNotFound].
func (s *Store) Cancel(ctx context.Context, tx pgx.Tx, id string) error {
	return cancel(ctx, pgxRunner{tx}, id)
}

// Reschedule changes the time of a scheduled message in the caller's transaction. A message that has moved on gives
// [schema.ErrNotFound].
func (s *Store) Reschedule(ctx context.Context, tx pgx.Tx, id string, at time.Time) error {
	return reschedule(ctx, pgxRunner{tx}, id, at)
}

func cancel(ctx context.Context, r runner, id string) error {
	n := 0
	err := r.run(ctx, statement{sql: `
		WITH gone AS (DELETE FROM millbridge.scheduled WHERE id = $1::text::uuid RETURNING key_hash),
		k AS (DELETE FROM millbridge.keys WHERE hash IN (SELECT key_hash FROM gone))
		SELECT count(*) FROM gone`, args: []any{schema.RowID(id).String()}, each: scan(&n)})
	if err == nil && n == 0 {
		err = notFound()
	}
	return wrap(fmt.Sprintf("cancel message %s", schema.OneLine(id)), err)
}

func reschedule(ctx context.Context, r runner, id string, at time.Time) error {
	n := 0
	err := r.run(ctx, statement{sql: `
		WITH moved AS (UPDATE millbridge.scheduled SET due_at = timestamptz 'epoch' + $2::bigint * interval '1 microsecond'
		                WHERE id = $1::text::uuid RETURNING 1)
		SELECT count(*) FROM moved`, args: []any{schema.RowID(id).String(), at.UnixMicro()}, each: scan(&n)})
	if err == nil && n == 0 {
		err = notFound()
	}
	return wrap(fmt.Sprintf("reschedule message %s", schema.OneLine(id)), err)
}
