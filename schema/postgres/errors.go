package postgres

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/millbridge/millbridge/schema"
)

// SQLSTATE codes that callers decide on.
const (
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeUndefinedTable       = "42P01"
	codeInvalidSchemaName    = "3F000"
	codeUndefinedColumn      = "42703"
)

// wrap says what was being done and adds the sentinel that the server's answer stands for.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch answer.Code {
		case codeSerializationFailure, codeDeadlockDetected:
			return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w: %w", doing, schema.ErrRetryTransaction, err))
		case codeUndefinedTable, codeInvalidSchemaName, codeUndefinedColumn:
			return fmt.Errorf("%s: %w: %w", doing, schema.ErrNotMigrated, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func noRows(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows)
}
