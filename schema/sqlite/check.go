package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// Check proves that the database is migrated to exactly this version and reports every setting of the writing connection
// and everything in the database with which messages would be lost.
func (s *Store) Check(ctx context.Context) error {
	have, want, err := s.SchemaVersion(ctx)
	switch {
	case err != nil:
		return err
	case have < want:
		return schema.WithKind(schema.Permanent, fmt.Errorf("%w: it has version %d, this program needs %d", schema.ErrNotMigrated, have, want))
	case have > want:
		return schema.WithKind(schema.Permanent, fmt.Errorf("%w: it has version %d, this program knows %d", schema.ErrSchemaTooNew, have, want))
	}
	var faults []error
	for _, look := range []func(context.Context) (error, error){s.journalFault, s.poolFault, s.triggerFault, s.fileFault} {
		fault, err := look(ctx)
		if err != nil {
			return wrap("check database", err)
		}
		if fault != nil {
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		return schema.WithKind(schema.Permanent, fmt.Errorf("check database: %w", errors.Join(faults...)))
	}
	return nil
}

// journalFault reports commits that do not reach the disk.
func (s *Store) journalFault(ctx context.Context) (fault, err error) {
	var mode string
	var level int
	if err := s.write.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return nil, err
	}
	if err := s.write.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return nil, err
	}
	const full = 2
	switch {
	case mode != "wal":
		return fmt.Errorf("the writing connection has journal_mode=%s, it must be wal", mode), nil
	case level < full:
		return fmt.Errorf("the writing connection has synchronous=%d, it must be FULL (%d)", level, full), nil
	}
	return nil, nil
}

// poolFault reports several writing connections, of which the settings of only one could be read.
func (s *Store) poolFault(context.Context) (fault, err error) {
	if n := s.write.Stats().MaxOpenConnections; n != 1 {
		return fmt.Errorf("the writing side may open %d connections (0: any number), it must be 1", n), nil
	}
	return nil, nil
}

// triggerFault reports triggers on our tables that are not ours, which can change or drop rows.
func (s *Store) triggerFault(ctx context.Context) (fault, err error) {
	var n int
	var name, table string
	const triggers = `SELECT count(*), coalesce(min(name), ''), coalesce(min(tbl_name), '') FROM
		(SELECT name, tbl_name, type FROM sqlite_master UNION ALL SELECT name, tbl_name, type FROM sqlite_temp_master)
		WHERE type = 'trigger' AND tbl_name GLOB 'millbridge_*' AND name NOT GLOB 'millbridge_*'`
	if err := s.write.QueryRowContext(ctx, triggers).Scan(&n, &name, &table); err != nil || n == 0 {
		return nil, err
	}
	return fmt.Errorf("%s has a trigger (%s), which can change or drop messages: remove it", table, name), nil
}

// fileFault reports two sides that are not one database.
func (s *Store) fileFault(ctx context.Context) (fault, err error) {
	const file = `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`
	var write, read string
	if err := s.write.QueryRowContext(ctx, file).Scan(&write); err != nil {
		return nil, err
	}
	if err := s.read.QueryRowContext(ctx, file).Scan(&read); err != nil {
		return nil, err
	}
	if write != read {
		return fmt.Errorf("one side writes to %q, the other reads from %q: open the same file", write, read), nil
	}
	return nil, nil
}

// WeakSettings says what the database's settings cost where they promise less than they could.
func (s *Store) WeakSettings(ctx context.Context) (notes []string, err error) {
	name, err := s.fileName(ctx)
	if err != nil {
		return nil, wrap("read settings", err)
	}
	kind, err := networkFileSystem(name)
	if err != nil {
		return nil, wrap("read settings", err)
	}
	if kind != "" {
		notes = append(notes, fmt.Sprintf("%s is on a network file system (%s): a second machine that opens it corrupts it, and its locks may not hold; use a local disk", name, kind))
	}
	return notes, nil
}

// CheckRights reports a database that cannot be written to.
func (s *Store) CheckRights(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrap("check rights", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is to be kept
	if _, err := tx.ExecContext(ctx, "DELETE FROM millbridge_outbox WHERE false"); err != nil {
		return wrap("check rights", err)
	}
	return nil
}
