package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

const sagaColumns = `saga, id, tenant, status, step, state, version, created_at, updated_at`

func scanSaga(rows rowSet) (rec schema.SagaRecord, err error) {
	var status, state string
	err = rows.Scan(&rec.Saga, &rec.ID, &rec.Tenant, &status, &rec.Step, &state, &rec.Version, &rec.CreatedAt, &rec.UpdatedAt)
	rec.Status, rec.State = schema.SagaStatus(status), bytesOf(state)
	rec.CreatedAt, rec.UpdatedAt = rec.CreatedAt.UTC(), rec.UpdatedAt.UTC()
	return rec, err
}

// bytesOf returns nil for an empty text.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// Saga returns a saga as it stands, and whether there is one.
func (s *Store) Saga(ctx context.Context, saga, id string) (rec schema.SagaRecord, found bool, err error) {
	return readSaga(ctx, s.pool, saga, id, "")
}

// readSaga reads a saga, and locks it if lock says so.
func readSaga(ctx context.Context, from batchSender, saga, id, lock string) (rec schema.SagaRecord, found bool, err error) {
	err = pgxRunner{from}.run(ctx, statement{
		sql:  `SELECT ` + sagaColumns + ` FROM millbridge.sagas WHERE saga = $1::text AND id = $2::text` + lock,
		args: []any{saga, id},
		each: func(rows rowSet) (err error) {
			found = true
			rec, err = scanSaga(rows)
			return err
		},
	})
	return rec, found, wrap("read saga", err)
}

const (
	sqlNewSaga = `
		WITH saved AS (
			INSERT INTO millbridge.sagas (saga, id, tenant, status, step, state, version)
			VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::integer)
			ON CONFLICT (saga, id) DO NOTHING RETURNING saga, id, version
		)` + sqlSagaEvent
	sqlChangeSaga = `
		WITH saved AS (
			UPDATE millbridge.sagas SET tenant = $3::text, status = $4::text, step = $5::text, state = $6::text, version = $7::integer,
			       updated_at = clock_timestamp()
			 WHERE saga = $1::text AND id = $2::text AND version = $7::integer - 1 RETURNING saga, id, version
		)` + sqlSagaEvent
	sqlSagaEvent = `
		INSERT INTO millbridge.saga_events (saga, id, n, step, kind, rationale, intents, state)
		SELECT saga, id, version, $8::text, $9::text, $10::text, $11::text, $12::text FROM saved RETURNING true`
)

func saveSaga(ctx context.Context, tx pgx.Tx, rec schema.SagaRecord, ev schema.SagaEvent) error {
	if err := schema.CheckSaga(rec, ev); err != nil {
		return fmt.Errorf("save saga: %w", err)
	}
	sql := sqlChangeSaga
	if rec.Version == 1 {
		sql = sqlNewSaga
	}
	saved := false
	err := pgxRunner{tx}.run(ctx, statement{sql: sql, each: scan(&saved), args: []any{
		rec.Saga, rec.ID, rec.Tenant, string(rec.Status), rec.Step, string(rec.State), rec.Version,
		ev.Step, ev.Kind, ev.Rationale, string(ev.Intents), string(ev.State),
	}})
	if err == nil && !saved {
		return schema.WithKind(schema.Temporary, fmt.Errorf("save saga %s %s as version %d: somebody was quicker: %w", rec.Saga, rec.ID, rec.Version, schema.ErrRetryTransaction))
	}
	return wrap("save saga", err)
}

// Sagas lists sagas by name and id.
func (s *Store) Sagas(ctx context.Context, f schema.SagaFilter) ([]schema.SagaRecord, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	var list []schema.SagaRecord
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT ` + sagaColumns + ` FROM millbridge.sagas
			WHERE (saga, id) > ($1::text COLLATE "C", $2::text COLLATE "C") AND $3::text IN ('', saga) AND $4::text IN ('', tenant) AND $5::text IN ('', status)
			  AND ($6::bigint <= 0 OR updated_at <= clock_timestamp() - $6::bigint * interval '1 microsecond')
			ORDER BY saga, id LIMIT $7::bigint`,
		args: []any{f.AfterSaga, f.AfterID, f.Saga, f.Tenant, string(f.Status), f.Idle.Microseconds(), limit},
		each: func(rows rowSet) error {
			rec, err := scanSaga(rows)
			list = append(list, rec)
			return err
		},
	})
	return list, wrap("list sagas", err)
}

// SagaHistory returns the events of a saga in their order.
func (s *Store) SagaHistory(ctx context.Context, saga, id string) ([]schema.SagaEvent, error) {
	var list []schema.SagaEvent
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT n, step, kind, rationale, intents, state, at FROM millbridge.saga_events
			WHERE saga = $1::text AND id = $2::text ORDER BY n`,
		args: []any{saga, id},
		each: func(rows rowSet) error {
			var ev schema.SagaEvent
			var intents, state string
			err := rows.Scan(&ev.N, &ev.Step, &ev.Kind, &ev.Rationale, &intents, &state, &ev.At)
			ev.Intents, ev.State, ev.At = bytesOf(intents), bytesOf(state), ev.At.UTC()
			list = append(list, ev)
			return err
		},
	})
	return list, wrap("read history of saga", err)
}

// pruneSagas deletes sagas that ended before they need be kept, with their events.
func pruneSagas(keep time.Duration, limit int, gone *int) statement {
	return statement{sql: `
		WITH old AS MATERIALIZED (
			SELECT saga, id FROM millbridge.sagas
			 WHERE status IN ('done', 'compensated') AND updated_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
			 ORDER BY updated_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
		events AS (DELETE FROM millbridge.saga_events AS e USING old WHERE e.saga = old.saga AND e.id = old.id),
		gone AS (DELETE FROM millbridge.sagas AS s USING old WHERE s.saga = old.saga AND s.id = old.id RETURNING 1)
		SELECT count(*) FROM gone`, args: []any{keep.Microseconds(), limit}, each: scan(gone)}
}
