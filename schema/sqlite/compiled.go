package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// hot are the statements that each handled message needs. To compile one, with the triggers that it sets off, takes
// longer than to run it.
var hot = []string{sqlInsertInbox, sqlDone}

// begin begins a write transaction, in which hot statements are compiled already: while it has the only connection
// nothing could be compiled to stay.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	if s.compiled.Load() == nil {
		s.compile(ctx)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if errors.Is(err, context.DeadlineExceeded) { // all that it waits for is that others let go
		err = schema.WithKind(schema.Temporary, fmt.Errorf("%w: %w", schema.ErrBusy, err))
	}
	return tx, err
}

// compile compiles the hot statements. If it cannot, the database may not be migrated yet, and the next one tries again.
func (s *Store) compile(ctx context.Context) {
	all := make(map[string]*sql.Stmt, len(hot))
	for _, query := range hot {
		stmt, err := s.write.PrepareContext(ctx, query)
		if err != nil {
			closeAll(all)
			return
		}
		all[query] = stmt
	}
	if !s.compiled.CompareAndSwap(nil, &all) {
		closeAll(all)
	}
}

func closeAll(stmts map[string]*sql.Stmt) {
	for _, stmt := range stmts {
		stmt.Close() //nolint:errcheck // it was only read from
	}
}

// affectedHot is affected for a hot statement, in a transaction of this store's or of a connection that is the caller's.
func (s *Store) affectedHot(ctx context.Context, tx *sql.Tx, query string, args ...any) (int, error) {
	all := s.compiled.Load()
	if all == nil {
		return affected(ctx, tx, query, args...)
	}
	stmt := tx.StmtContext(ctx, (*all)[query])
	defer stmt.Close() //nolint:errcheck // the transaction's copy of it
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
