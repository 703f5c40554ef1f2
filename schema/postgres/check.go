package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// minServer is the oldest server whose snapshots and locks were tried.
const minServer = 140000

// Check reports all reasons why this program cannot work on the database as it is: tables of another version, a
// standby, a pooler without transactions, settings under which messages would be lost, changed or reordered.
func (s *Store) Check(ctx context.Context) error {
	have, want, err := s.SchemaVersion(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("check database: %w", err)
	case have < want:
		return fmt.Errorf("check database: version %d, want %d: %w", have, want, schema.ErrNotMigrated)
	case have > want:
		return fmt.Errorf("check database: version %d, want %d: %w", have, want, schema.ErrSchemaTooNew)
	}
	var faults []error
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		found, err := s.readSettings(ctx, tx)
		if err != nil {
			return err
		}
		inTables, err := tableFaults(ctx, tx)
		faults = append(found.faults(), inTables...)
		return err
	})
	if err != nil {
		return wrap("check database", err)
	}
	if len(faults) > 0 {
		return schema.WithKind(schema.Permanent, fmt.Errorf("check database: %w", errors.Join(faults...)))
	}
	return nil
}

// WeakSettings says what the database's settings cost where they promise less than they could, one sentence each.
func (s *Store) WeakSettings(ctx context.Context) (notes []string, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		found, err := s.readSettings(ctx, tx)
		notes = found.notes()
		return err
	})
	return notes, wrap("read settings", err)
}

// Durability returns how much of what it confirms this database keeps, and what makes it less than it could be. It knows
// the settings of this store's own sessions; those of other roles may be weaker.
func (s *Store) Durability(ctx context.Context) (level schema.Durability, weak string, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		found, err := s.readSettings(ctx, tx)
		level, weak = found.durability()
		return err
	})
	if err != nil {
		return schema.AnyDurability, "", wrap("read settings", err)
	}
	return level, weak, nil
}

// CheckRights reports what our role may not do in the tables although a bridge has to.
func (s *Store) CheckRights(ctx context.Context) error {
	var role string
	var missing []string
	err := s.pool.QueryRow(ctx, `
		SELECT current_user::text, ARRAY(
			SELECT DISTINCT p.may || ' on millbridge.' || c.relname
			  FROM pg_catalog.pg_class AS c
			  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
			 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (may)
			 WHERE n.nspname = 'millbridge' AND c.relkind IN ('r', 'p')
			   AND (c.relname NOT IN ('meta', 'migrations') OR p.may = 'SELECT')
			   AND NOT pg_catalog.has_table_privilege(c.oid, p.may)
			 UNION ALL
			SELECT 'USAGE on millbridge.outbox_seq' WHERE NOT pg_catalog.has_sequence_privilege('millbridge.outbox_seq', 'USAGE')
			 ORDER BY 1)`).Scan(&role, &missing)
	if err != nil {
		return wrap("check rights", err)
	}
	if len(missing) > 0 {
		return schema.WithKind(schema.Permanent, fmt.Errorf("check rights: role %s lacks %s: grant it, or a role that has them", role, list(missing)))
	}
	return nil
}

// Info returns the outbox's identity and settings.
func (s *Store) Info(ctx context.Context) (schema.OutboxInfo, error) {
	var info schema.OutboxInfo
	var jobsGen, jobsShards, eventsGen, eventsShards int
	err := s.pool.QueryRow(ctx, `
		SELECT outbox_id,
		       system_id = (SELECT system_identifier FROM pg_catalog.pg_control_system())
		           AND database_oid = (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()),
		       max_payload, jobs_generation, jobs_shards, events_generation, events_shards
		  FROM millbridge.meta
	`).Scan(&info.ID, &info.Bound, &info.MaxPayload, &jobsGen, &jobsShards, &eventsGen, &eventsShards)
	if noRows(err) {
		return info, fmt.Errorf("read outbox: %w", schema.ErrNotMigrated)
	}
	if err != nil {
		return info, s.failed("read outbox", err)
	}
	info.Generation = map[schema.Stream]int{schema.Jobs: jobsGen, schema.Events: eventsGen}
	info.Shards = map[schema.Stream]int{schema.Jobs: jobsShards, schema.Events: eventsShards}
	return info, nil
}
