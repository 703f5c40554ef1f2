package sqlite

import (
	"context"

	"github.com/millbridge/millbridge/schema"
)

// Saga returns a saga as it stands, and whether there is one.
func (s *Store) Saga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error) {
	list, err := collect(ctx, s.read, scanSaga, "SELECT "+sagaColumns+" FROM millbridge_sagas WHERE saga = ? AND id = ?", saga, id)
	if err != nil || len(list) == 0 {
		return schema.SagaRecord{}, false, wrap("read saga", err)
	}
	return list[0], true, nil
}
