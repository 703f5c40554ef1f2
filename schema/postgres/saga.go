package postgres

import (
	"context"

	"github.com/millbridge/millbridge/schema"
)

// Saga returns a saga as it stands, and whether there is one.
func (s *Store) Saga(ctx context.Context, saga, id string) (rec schema.SagaRecord, found bool, err error) {
	err = pgxRunner{s.pool}.run(ctx, statement{
		sql:  `SELECT ` + sagaColumns + ` FROM millbridge.sagas WHERE saga = $1::text AND id = $2::text`,
		args: []any{saga, id},
		each: func(rows rowSet) (err error) {
			found = true
			rec, err = scanSaga(rows)
			return err
		},
	})
	return rec, found, wrap("read saga", err)
}
