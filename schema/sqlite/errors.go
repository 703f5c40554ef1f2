package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// Primary result codes of SQLite that callers decide on. The first two mean "another connection is in the way".
const (
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeIO       = 10
	codeFull     = 13
	codeCantOpen = 14
)

// isBusy reports whether err is SQLITE_BUSY or SQLITE_LOCKED in any of their extended forms (261, 262, 517, ...).
// Drivers agree on a method Code only; this package imports none of them.
func isBusy(err error) bool {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return false
	}
	primary := coded.Code() & 0xff
	return primary == codeBusy || primary == codeLocked
}

// wrap says what was being done and marks a busy database as a transaction to be run again.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if isBusy(err) && !errors.Is(err, schema.ErrRetryTransaction) {
		return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w: %w: %w", what, schema.ErrBusy, schema.ErrRetryTransaction, err))
	}
	if outage := outageOf(err); outage != nil {
		return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w: %w", what, outage, err))
	}
	if isMissing(err) && !errors.Is(err, schema.ErrNotMigrated) {
		return schema.WithKind(schema.Permanent, fmt.Errorf("%s: %w: %w", what, schema.ErrNotMigrated, err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// outageOf returns which outage err stands for, one of the errors that are [schema.ErrUnavailable], or nil.
func outageOf(err error) error {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) || errors.Is(err, schema.ErrUnavailable) {
		return nil
	}
	switch coded.Code() & 0xff {
	case codeFull:
		return schema.ErrNoSpace
	case codeReadOnly:
		return schema.ErrReadOnly
	case codeIO:
		return schema.ErrIO
	case codeCantOpen:
		return schema.ErrUnreachable
	}
	return nil
}

// blame marks the error with which the work in a transaction has ended if the database is to blame for it.
func blame(err error) error {
	if outage := outageOf(err); outage != nil {
		return fmt.Errorf("%w: %w", outage, err)
	}
	return err
}

// isMissing reports whether err says that a table or column of ours is not there. SQLite has no code for that.
func isMissing(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no such table: millbridge_") || strings.Contains(text, "no such column:")
}

// leaseLost says that somebody else owns what was to be written.
func leaseLost() error { return schema.WithKind(schema.NotMine, schema.ErrLeaseLost) }
