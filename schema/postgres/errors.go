package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
	codeDuplicateStatement   = "42P05"
	codeUndefinedStatement   = "26000"
)

// errStatementPooling reports a pooler that hands out a connection for each statement, so that there are no transactions.
var errStatementPooling = schema.WithKind(schema.Permanent, errors.New("the pooler in front of the database breaks transactions apart: set pool_mode = transaction there"))

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
		case codeDuplicateStatement, codeUndefinedStatement:
			return fmt.Errorf("%s: a pooler keeps prepared statements from working: add default_query_exec_mode=cache_describe to the database's URL: %w", doing, err)
		}
		if strings.Contains(answer.Message, "statement pooling") { // PgBouncer has no code for it
			return fmt.Errorf("%s: %w: %w", doing, errStatementPooling, err)
		}
	}
	if outage := outageOf(err); outage != nil {
		return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w: %w", doing, outage, err))
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func noRows(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows)
}
