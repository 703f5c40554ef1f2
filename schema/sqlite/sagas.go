package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

const sagaColumns = "saga, id, tenant, status, step, state, version, created_at, updated_at"

func scanSaga(rows *sql.Rows, rec *schema.SagaRecord) error {
	var state string
	var created, updated int64
	err := rows.Scan(&rec.Saga, &rec.ID, &rec.Tenant, &rec.Status, &rec.Step, &state, &rec.Version, &created, &updated)
	rec.State, rec.CreatedAt, rec.UpdatedAt = bytesOf(state), at(created), at(updated)
	return err
}

// bytesOf returns nil for an empty text.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func (s *Store) saveSaga(ctx context.Context, tx *sql.Tx, rec schema.SagaRecord, ev schema.SagaEvent) error {
	if err := schema.CheckSaga(rec, ev); err != nil {
		return fmt.Errorf("save saga: %w", err)
	}
	now := s.now()
	var n int
	var err error
	if rec.Version == 1 {
		n, err = affected(ctx, tx, "INSERT INTO millbridge_sagas ("+sagaColumns+") VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (saga, id) DO NOTHING",
			rec.Saga, rec.ID, rec.Tenant, string(rec.Status), rec.Step, string(rec.State), rec.Version, now, now)
	} else {
		n, err = affected(ctx, tx, `UPDATE millbridge_sagas SET tenant = ?, status = ?, step = ?, state = ?, version = ?, updated_at = ?
			WHERE saga = ? AND id = ? AND version = ?`,
			rec.Tenant, string(rec.Status), rec.Step, string(rec.State), rec.Version, now, rec.Saga, rec.ID, rec.Version-1)
	}
	if err != nil {
		return wrap("save saga", err)
	}
	if n == 0 {
		return schema.WithKind(schema.Temporary, fmt.Errorf("save saga %s %s as version %d: somebody was quicker: %w", rec.Saga, rec.ID, rec.Version, schema.ErrRetryTransaction))
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO millbridge_saga_events (saga, id, n, at, step, kind, rationale, intents, state)
		VALUES (?,?,?,?,?,?,?,?,?)`, rec.Saga, rec.ID, rec.Version, now, ev.Step, ev.Kind, ev.Rationale, string(ev.Intents), string(ev.State))
	return wrap("save saga", err)
}

// LoadSaga begins the transaction, which keeps all other writers out.
func (u *unit) LoadSaga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error) {
	tx, err := u.begin()
	if err != nil {
		return schema.SagaRecord{}, false, err
	}
	return readSaga(ctx, tx, saga, id)
}

// Saga returns a saga as it stands, and whether there is one.
func (s *Store) Saga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error) {
	return readSaga(ctx, s.read, saga, id)
}

func readSaga(ctx context.Context, from queryer, saga, id string) (schema.SagaRecord, bool, error) {
	list, err := collect(ctx, from, scanSaga, "SELECT "+sagaColumns+" FROM millbridge_sagas WHERE saga = ? AND id = ?", saga, id)
	if err != nil || len(list) == 0 {
		return schema.SagaRecord{}, false, wrap("read saga", err)
	}
	return list[0], true, nil
}

func (u *unit) SaveSaga(ctx context.Context, rec schema.SagaRecord, ev schema.SagaEvent) error {
	tx, err := u.begin()
	if err != nil {
		return err
	}
	return u.store.saveSaga(ctx, tx, rec, ev)
}

// Sagas lists sagas by name and id.
func (s *Store) Sagas(ctx context.Context, f schema.SagaFilter) ([]schema.SagaRecord, error) {
	limit, before := f.Limit, int64(1)<<62
	if limit <= 0 {
		limit = 100
	}
	if f.Idle > 0 {
		before = s.now() - f.Idle.Nanoseconds()
	}
	list, err := collect(ctx, s.read, scanSaga, "SELECT "+sagaColumns+` FROM millbridge_sagas
		WHERE (saga, id) > (?, ?) AND ? IN ('', saga) AND ? IN ('', tenant) AND ? IN ('', status) AND updated_at <= ?
		ORDER BY saga, id LIMIT ?`, f.AfterSaga, f.AfterID, f.Saga, f.Tenant, string(f.Status), before, limit)
	return list, wrap("list sagas", err)
}

// SagaHistory returns the events of a saga in their order.
func (s *Store) SagaHistory(ctx context.Context, saga, id string) ([]schema.SagaEvent, error) {
	list, err := collect(ctx, s.read, func(rows *sql.Rows, ev *schema.SagaEvent) error {
		var intents, state string
		var when int64
		err := rows.Scan(&ev.N, &ev.Step, &ev.Kind, &ev.Rationale, &intents, &state, &when)
		ev.Intents, ev.State, ev.At = bytesOf(intents), bytesOf(state), at(when)
		return err
	}, `SELECT n, step, kind, rationale, intents, state, at FROM millbridge_saga_events WHERE saga = ? AND id = ? ORDER BY n`, saga, id)
	return list, wrap("read history of saga", err)
}
