package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

const (
	// patience is what a statement of ours may take on a busy server with a large backlog.
	patience = 10 * time.Second
	// handling is how long the transaction of a handler may wait for the handler without the server ending it.
	handling = time.Minute
	// room is how many numbers the outbox's sequence must be able to draw.
	room = 1 << 60
)

// settings is what the server says about itself and about our sessions.
type settings struct {
	version                                       int
	standby, readOnly, cycles                     bool
	encoding, client, bytea, dates                string
	cache, increment, last                        int64
	fsync, pages, commit, vacuum, syncStandbys    string
	statementTimeout, idleTimeout, transactionEnd int64 // ms
	text                                          bool  // values travel as text
	pooled, prepares                              bool
}

func (s *Store) readSettings(ctx context.Context, tx pgx.Tx) (found settings, err error) {
	var backend uint32
	err = tx.QueryRow(ctx, `
		WITH s AS MATERIALIZED (SELECT name, setting FROM pg_catalog.pg_settings)
		SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
		       current_setting('server_encoding'), current_setting('client_encoding'), current_setting('bytea_output'), current_setting('datestyle'),
		       seqcache, seqincrement, seqmax, seqcycle,
		       current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('autovacuum'),
		       coalesce(current_setting('synchronous_standby_names', true), ''),
		       (SELECT setting::bigint FROM s WHERE name = 'statement_timeout'),
		       (SELECT setting::bigint FROM s WHERE name = 'idle_in_transaction_session_timeout'),
		       coalesce((SELECT setting::bigint FROM s WHERE name = 'transaction_timeout'), 0), pg_backend_pid()
		  FROM pg_catalog.pg_sequence WHERE seqrelid = 'millbridge.outbox_seq'::regclass`).
		Scan(&found.version, &found.standby, &found.readOnly, &found.encoding, &found.client, &found.bytea, &found.dates,
			&found.cache, &found.increment, &found.last, &found.cycles, &found.fsync, &found.pages, &found.commit, &found.vacuum,
			&found.syncStandbys, &found.statementTimeout, &found.idleTimeout, &found.transactionEnd, &backend)
	mode := s.pool.Config().ConnConfig.DefaultQueryExecMode
	found.text = mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
	found.prepares = mode == pgx.QueryExecModeCacheStatement
	found.pooled = tx.Conn().PgConn().PID() != backend
	return found, err
}

// faults are the settings that cannot be worked with, each with how to put it right.
func (s settings) faults() (all []error) {
	fault := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	const sequence = "ALTER SEQUENCE millbridge.outbox_seq"
	fault(s.version < minServer, "server version %d.%d is too old, want 14 or newer", s.version/10000, s.version%10000)
	fault(s.standby, "the server is a standby: connect to the primary")
	fault(s.readOnly && !s.standby, "default_transaction_read_only is on, so that nothing can be written: set it to off for this role and database")
	fault(s.encoding != "UTF8", "the database's encoding is %s, which cannot hold every error text: create it with UTF8", s.encoding)
	fault(s.client != "UTF8", "client_encoding is %s, which would change texts: set it to UTF8 for this role and database", s.client)
	fault(s.text && s.bytea != "hex", "bytea_output is %s, which cannot be read in this query mode: set it to hex for this role and database", s.bytea)
	fault(s.text && !strings.HasPrefix(s.dates, "ISO"), "datestyle is %s, which cannot be read in this query mode: set it to ISO for this role and database", s.dates)
	fault(s.cache != 1, "millbridge.outbox_seq has CACHE %d, which breaks the order of messages: %s CACHE 1", s.cache, sequence)
	fault(s.increment < 1, "millbridge.outbox_seq has INCREMENT %d, which turns the order of messages round: %s INCREMENT 1", s.increment, sequence)
	fault(s.cycles, "millbridge.outbox_seq has CYCLE, which breaks the order of messages: %s NO CYCLE", sequence)
	fault(s.last < room, "millbridge.outbox_seq ends at %d, when publishing will fail: %s AS bigint NO MAXVALUE", s.last, sequence)
	return all
}

// notes are the settings that promise less than they could.
func (s settings) notes() (all []string) {
	note := func(weak bool, format string, args ...any) {
		if weak {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	below := func(n int64, d time.Duration) bool { return n > 0 && ms(n) < d }
	note(s.fsync != "on", "the database has fsync = %s: a crash of its machine loses or corrupts messages", s.fsync)
	note(s.pages != "on", "the database has full_page_writes = %s: a crash of its machine can corrupt messages", s.pages)
	note(s.commit == "off", "the database has synchronous_commit = off for this role: a crash of it can undo commits that it has confirmed, with their messages")
	note(s.syncStandbys != "" && (s.commit == "local" || s.commit == "off"),
		"the database has synchronous standbys and synchronous_commit = %s for this role: a fail-over can undo commits whose messages are sent", s.commit)
	note(s.vacuum != "on", "the database has autovacuum = %s: reading the outbox gets slower with every message", s.vacuum)
	note(below(s.statementTimeout, patience), "the database has statement_timeout = %v for this role: with a large backlog statements of the bridge may need up to %v", ms(s.statementTimeout), patience)
	note(below(s.idleTimeout, handling), "the database has idle_in_transaction_session_timeout = %v for this role: handlers in tx mode that take longer fail", ms(s.idleTimeout))
	note(below(s.transactionEnd, handling), "the database has transaction_timeout = %v for this role: handlers in tx mode that take longer fail", ms(s.transactionEnd))
	note(s.pooled && s.prepares, "a pooler is in front of the database, and queries are prepared: unless it keeps sessions or prepared statements, add default_query_exec_mode=cache_describe to the database's URL")
	return all
}

// durability is how much of what it has confirmed the database keeps when it crashes, and why not all of it.
func (s settings) durability() (schema.Durability, string) {
	switch {
	case s.fsync != "on":
		return schema.OnPostgresAsync, "the database has fsync = " + s.fsync
	case s.pages != "on":
		return schema.OnPostgresAsync, "the database has full_page_writes = " + s.pages
	case s.commit == "off", s.commit == "local" && s.syncStandbys != "":
		return schema.OnPostgresAsync, "the database has synchronous_commit = " + s.commit + " for this role"
	}
	return schema.OnPostgres, ""
}

// tableFaults finds what was done to our tables that changes, hides or drops rows.
func tableFaults(ctx context.Context, tx pgx.Tx) (faults []error, err error) {
	type table struct {
		Name, Persistence string
		Hidden            bool
		Triggers, Rules   []string
	}
	rows, err := tx.Query(ctx, `
		SELECT c.relname::text, c.relpersistence::text, pg_catalog.row_security_active(c.oid),
		       ARRAY(SELECT t.tgname::text FROM pg_catalog.pg_trigger AS t
		              WHERE t.tgrelid = c.oid AND t.tgenabled <> 'D' AND t.tgtype & 3 = 3 ORDER BY 1),
		       ARRAY(SELECT r.rulename::text FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = c.oid AND r.ev_enabled <> 'D' ORDER BY 1)
		  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		 WHERE n.nspname = 'millbridge' AND c.relkind IN ('r', 'p') ORDER BY 1`) // tgtype: 1 is FOR EACH ROW, 2 is BEFORE
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		switch unlogged := t.Persistence == "u"; {
		case t.Name == "epoch" && !unlogged:
			faults = append(faults, errors.New("millbridge.epoch is not UNLOGGED, so that a crash of the server would not be noticed: ALTER TABLE millbridge.epoch SET UNLOGGED"))
		case t.Name != "epoch" && unlogged:
			faults = append(faults, fmt.Errorf("millbridge.%s is UNLOGGED, so that a crash of the server empties it: ALTER TABLE millbridge.%s SET LOGGED", t.Name, t.Name))
		}
		if len(t.Triggers) > 0 {
			faults = append(faults, fmt.Errorf("millbridge.%s has a BEFORE ROW trigger (%s), which can change or drop messages: remove it", t.Name, list(t.Triggers)))
		}
		if len(t.Rules) > 0 {
			faults = append(faults, fmt.Errorf("millbridge.%s has a rule (%s), which can change or drop messages: remove it", t.Name, list(t.Rules)))
		}
		if t.Hidden {
			faults = append(faults, fmt.Errorf("millbridge.%s has row level security, which hides messages from this role: disable it, or grant the role BYPASSRLS", t.Name))
		}
	}
	return faults, nil
}

func list(names []string) string { return strings.Join(names, ", ") }
