package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// Cancel deletes a scheduled message in the caller's transaction. Its idempotency key is free again. A message that
// has moved on gives [schema.ErrNotFound], an id that several scheduled messages have [schema.ErrAmbiguous].
func (s *Store) Cancel(ctx context.Context, tx pgx.Tx, id string) error {
	return cancel(ctx, pgxRunner{tx}, id)
}

// Reschedule changes the time of a scheduled message in the caller's transaction. Its errors are those of [Store.Cancel].
func (s *Store) Reschedule(ctx context.Context, tx pgx.Tx, id string, at time.Time) error {
	return reschedule(ctx, pgxRunner{tx}, id, at)
}

func cancel(ctx context.Context, r runner, id string) error {
	there, n := 0, 0
	// The key may be forgotten meanwhile, and then be another message's.
	err := r.run(ctx, statement{sql: `
		WITH there AS (` + sqlScheduled + `),
		gone AS (DELETE FROM millbridge.scheduled WHERE id = $1::text::uuid AND seq = (SELECT min(seq) FROM there HAVING count(*) = 1) RETURNING key_hash),
		k AS (DELETE FROM millbridge.keys AS k USING gone WHERE k.hash = gone.key_hash AND k.message_id = $2::text)
		SELECT (SELECT count(*) FROM there), (SELECT count(*) FROM gone)`, args: []any{schema.RowID(id).String(), id}, each: scan(&there, &n)})
	return wrap(fmt.Sprintf("cancel message %s", schema.OneLine(id)), onlyOne(err, there, n))
}

func reschedule(ctx context.Context, r runner, id string, at time.Time) error {
	there, n := 0, 0
	err := r.run(ctx, statement{sql: `
		WITH there AS (` + sqlScheduled + `),
		moved AS (UPDATE millbridge.scheduled SET due_at = timestamptz 'epoch' + $2::bigint * interval '1 microsecond'
		           WHERE id = $1::text::uuid AND seq = (SELECT min(seq) FROM there HAVING count(*) = 1) RETURNING 1)
		SELECT (SELECT count(*) FROM there), (SELECT count(*) FROM moved)`, args: []any{schema.RowID(id).String(), at.UnixMicro()}, each: scan(&there, &n)})
	return wrap(fmt.Sprintf("reschedule message %s", schema.OneLine(id)), onlyOne(err, there, n))
}

const sqlScheduled = `SELECT seq FROM millbridge.scheduled WHERE id = $1::text::uuid FOR UPDATE`

// onlyOne explains why there was nothing to do, if so.
func onlyOne(err error, there, done int) error {
	switch {
	case err != nil || done == 1:
		return err
	case there > 1:
		return schema.WithKind(schema.Permanent, fmt.Errorf("%d scheduled messages: %w", there, schema.ErrAmbiguous))
	}
	return notFound()
}
