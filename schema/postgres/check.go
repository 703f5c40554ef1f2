package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// minServer is the oldest server whose snapshots and locks were tried.
const minServer = 140000

// Check reports all reasons why this program cannot work on the database as it is: tables of another version, a
// standby, settings under which messages would be lost or reordered.
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
	var server int
	var standby, trigger bool
	var cache int64
	var encoding string
	err = s.pool.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('server_encoding'),
		       (SELECT seqcache FROM pg_catalog.pg_sequence WHERE seqrelid = 'millbridge.outbox_seq'::regclass),
		       EXISTS (SELECT FROM pg_catalog.pg_trigger
		                WHERE tgrelid = 'millbridge.outbox'::regclass AND tgenabled <> 'D' AND tgtype & 3 = 3)
	`).Scan(&server, &standby, &encoding, &cache, &trigger) // tgtype: 1 is FOR EACH ROW, 2 is BEFORE
	if err != nil {
		return wrap("check database", err)
	}
	var faults []error
	if server < minServer {
		faults = append(faults, fmt.Errorf("server version %d.%d is too old, want 14 or newer", server/10000, server%10000))
	}
	if standby {
		faults = append(faults, errors.New("the server is a standby: connect to the primary"))
	}
	if encoding != "UTF8" {
		faults = append(faults, fmt.Errorf("the database's encoding is %s, which cannot hold every error text: create it with UTF8", encoding))
	}
	if cache != 1 {
		faults = append(faults, fmt.Errorf("millbridge.outbox_seq has CACHE %d, which breaks the order of messages: ALTER SEQUENCE millbridge.outbox_seq CACHE 1", cache))
	}
	if trigger {
		faults = append(faults, errors.New("millbridge.outbox has a BEFORE ROW trigger, which can change or drop messages: remove it"))
	}
	if len(faults) > 0 {
		return schema.WithKind(schema.Permanent, fmt.Errorf("check database: %w", errors.Join(faults...)))
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
		return info, wrap("read outbox", err)
	}
	info.Generation = map[schema.Stream]int{schema.Jobs: jobsGen, schema.Events: eventsGen}
	info.Shards = map[schema.Stream]int{schema.Jobs: jobsShards, schema.Events: eventsShards}
	return info, nil
}
