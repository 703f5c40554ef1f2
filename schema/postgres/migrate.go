package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Numbers of our own advisory locks. Those of ordering keys and inbox keys are hashes.
const (
	lockMigrate int64 = 0x6d696c6c_00000001
	lockTend    int64 = 0x6d696c6c_00000002
	lockStock   int64 = 0x6d696c6d_00000000 // and the number of the table
)

// Migrations returns the numbered files NNNN_name.up.sql and NNNN_name.down.sql, for users who run them with a tool of
// their own. Each file notes its version in millbridge.migrations itself; each should run in one transaction.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return migrationFiles // the directory is embedded, so this does not happen
	}
	return sub
}

// A migration is one version's files.
type migration struct {
	version  int
	up, down string
}

func migrations() ([]migration, error) {
	files, err := fs.Glob(Migrations(), "*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, name := range files { // sorted by name
		number, _, _ := strings.Cut(name, "_")
		v, err := strconv.Atoi(number)
		if err != nil || v != len(all)+1 {
			return nil, fmt.Errorf("migration file %q is out of sequence", name)
		}
		up, err := fs.ReadFile(Migrations(), name)
		if err != nil {
			return nil, err
		}
		down, err := fs.ReadFile(Migrations(), strings.TrimSuffix(name, ".up.sql")+".down.sql")
		if err != nil {
			return nil, err
		}
		all = append(all, migration{v, string(up), string(down)})
	}
	return all, nil
}

// MigrateUp brings the tables to this program's version. Any number of processes may call it at once: one works, the
// others wait and find nothing to do. All steps are one transaction, so nothing is left half done. It returns the
// versions before and after.
func (s *Store) MigrateUp(ctx context.Context) (from, to int, err error) {
	all, err := migrations()
	if err != nil {
		return 0, 0, fmt.Errorf("migrate up: %w", err)
	}
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		if from, err = lockVersion(ctx, tx); err != nil {
			return err
		}
		to = max(from, len(all))
		if from > len(all) {
			return fmt.Errorf("database has version %d, this program knows %d: %w", from, len(all), schema.ErrSchemaTooNew)
		}
		for _, m := range all[from:] {
			if err := runFile(ctx, tx, m.up); err != nil {
				return wrap(fmt.Sprintf("version %d", m.version), err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("migrate up: %w", err)
	}
	return from, to, nil
}

// MigrateDown drops all tables. It refuses with [schema.ErrNotEmpty] while messages wait in the outbox, are scheduled
// or parked, or sagas are under way, unless forced.
func (s *Store) MigrateDown(ctx context.Context, force bool) error {
	all, err := migrations()
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		have, err := lockVersion(ctx, tx)
		if err != nil || have == 0 {
			return err
		}
		if have > len(all) {
			return fmt.Errorf("database has version %d, this program knows %d: %w", have, len(all), schema.ErrSchemaTooNew)
		}
		if !force {
			if err := refuseRows(ctx, tx); err != nil {
				return err
			}
		}
		for i := have - 1; i >= 0; i-- {
			if err := runFile(ctx, tx, all[i].down); err != nil {
				return wrap(fmt.Sprintf("version %d", all[i].version), err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

// SchemaVersion returns the version that the database has (0: none) and the one that this program wants.
func (s *Store) SchemaVersion(ctx context.Context) (have, want int, err error) {
	all, err := migrations()
	if err != nil {
		return 0, 0, fmt.Errorf("read schema version: %w", err)
	}
	have, err = version(ctx, s.pool)
	return have, len(all), wrap("read schema version", err)
}

// lockVersion waits until no other process migrates and returns the database's version.
func lockVersion(ctx context.Context, tx pgx.Tx) (int, error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1::bigint)`, lockMigrate); err != nil {
		return 0, wrap("lock", err)
	}
	v, err := version(ctx, tx)
	return v, wrap("read version", err)
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func version(ctx context.Context, q rowQuerier) (int, error) {
	var there bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname = 'millbridge' AND c.relname = 'migrations')`).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	var v int
	err = q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM millbridge.migrations`).Scan(&v)
	return v, err
}

func refuseRows(ctx context.Context, tx pgx.Tx) error {
	// Without the lock a row could be committed between the look and the drop.
	const lock = `LOCK TABLE millbridge.outbox, millbridge.scheduled, millbridge.parked, millbridge.sagas IN ACCESS EXCLUSIVE MODE`
	if _, err := tx.Exec(ctx, lock); err != nil {
		return wrap("lock tables", err)
	}
	var outbox, scheduled, parked, sagas int64
	const count = `SELECT (SELECT count(*) FROM millbridge.outbox), (SELECT count(*) FROM millbridge.scheduled),
		(SELECT count(*) FROM millbridge.parked), (SELECT count(*) FROM millbridge.sagas WHERE status NOT IN ('done', 'compensated'))`
	if err := tx.QueryRow(ctx, count).Scan(&outbox, &scheduled, &parked, &sagas); err != nil {
		return wrap("count rows", err)
	}
	if outbox+scheduled+parked+sagas > 0 {
		return fmt.Errorf("outbox %d, scheduled %d, parked %d, sagas under way %d: %w", outbox, scheduled, parked, sagas, schema.ErrNotEmpty)
	}
	return nil
}

// runFile runs a file of several statements, which only the simple protocol takes.
func runFile(ctx context.Context, tx pgx.Tx, file string) error {
	_, err := tx.Exec(ctx, file, pgx.QueryExecModeSimpleProtocol)
	return err
}
