package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the migration scripts, for those who run them with a tool of their own: <version>_<name>.up.sql
// and .down.sql. Each records its version in millbridge_migrations itself.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the directory is embedded
	}
	return sub
}

// scripts returns the scripts with this suffix, lowest version first; the version of a script is its place from 1.
func scripts(suffix string) ([]string, error) {
	names, err := fs.Glob(Migrations(), "*"+suffix)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	all := make([]string, len(names))
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("migration %s is out of order", name)
		}
		text, err := fs.ReadFile(Migrations(), name)
		if err != nil {
			return nil, err
		}
		all[i] = string(text)
	}
	return all, nil
}

// SchemaVersion returns the version the database has (0: no tables of ours) and the one this program needs.
func (s *Store) SchemaVersion(ctx context.Context) (have, want int, err error) {
	up, err := scripts(".up.sql")
	if err != nil {
		return 0, 0, err
	}
	have, err = version(ctx, s.read)
	return have, len(up), wrap("read schema version", err)
}

type rowQueryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func version(ctx context.Context, q rowQueryer) (int, error) {
	var tables, have int
	err := q.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'millbridge_migrations'").Scan(&tables)
	if err != nil || tables == 0 {
		return 0, err
	}
	err = q.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM millbridge_migrations").Scan(&have)
	return have, err
}

// MigrateUp brings the database to the version this program needs, in one transaction. Any number of processes may do
// it at once: they take turns at the write lock and all but the first find nothing to do.
func (s *Store) MigrateUp(ctx context.Context) (from, to int, err error) {
	up, err := scripts(".up.sql")
	if err != nil {
		return 0, 0, err
	}
	err = s.update(ctx, "migrate up", func(tx *sql.Tx) error {
		var err error
		if from, err = version(ctx, tx); err != nil {
			return err
		}
		if from > len(up) {
			return schema.WithKind(schema.Permanent, fmt.Errorf("%w: it has version %d, this program knows %d", schema.ErrSchemaTooNew, from, len(up)))
		}
		for i := from; i < len(up); i++ {
			if _, err := tx.ExecContext(ctx, up[i]); err != nil {
				return fmt.Errorf("version %d: %w", i+1, err)
			}
		}
		to = len(up)
		return nil
	})
	if err != nil {
		return from, from, err
	}
	return from, to, nil
}

// MigrateDown drops everything of ours. While messages wait in outbox, scheduled or parked, or sagas are under way, it
// refuses with [schema.ErrNotEmpty], unless force is set.
func (s *Store) MigrateDown(ctx context.Context, force bool) error {
	down, err := scripts(".down.sql")
	if err != nil {
		return err
	}
	err = s.update(ctx, "migrate down", func(tx *sql.Tx) error {
		have, err := version(ctx, tx)
		if err != nil || have == 0 {
			return err
		}
		if have > len(down) {
			return schema.WithKind(schema.Permanent, fmt.Errorf("%w: it has version %d, this program knows %d", schema.ErrSchemaTooNew, have, len(down)))
		}
		if !force {
			var waiting int64
			if err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM millbridge_outbox) +
				(SELECT count(*) FROM millbridge_scheduled) + (SELECT count(*) FROM millbridge_parked) +
				(SELECT count(*) FROM millbridge_sagas WHERE status NOT IN ('done', 'compensated'))`).Scan(&waiting); err != nil {
				return err
			}
			if waiting > 0 {
				return schema.WithKind(schema.Permanent, fmt.Errorf("%w: %d messages wait in outbox, scheduled or parked, or are sagas under way", schema.ErrNotEmpty, waiting))
			}
		}
		for i := have - 1; i >= 0; i-- {
			if _, err := tx.ExecContext(ctx, down[i]); err != nil {
				return fmt.Errorf("version %d: %w", i+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.flushed.Store(0)
	s.limit.set(0, time.Time{})
	return nil
}
