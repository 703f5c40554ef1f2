package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// sessions returns a store on connections of a database with these settings, as ALTER ROLE or ALTER DATABASE make them.
// A pooler would refuse them.
func sessions(t *testing.T, pool *pgxpool.Pool, mode pgx.QueryExecMode, set map[string]string) *postgres.Store {
	t.Helper()
	return postgres.New(direct(t, pool, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DefaultQueryExecMode = mode
		for name, value := range set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}), postgres.Options{})
}

// direct opens another pool on the database of a pool, past any pooler.
func direct(t *testing.T, pool *pgxpool.Pool, edit func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testkit.DirectPostgresURL(t, pool))
	if err != nil {
		t.Fatal(err)
	}
	edit(cfg)
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestCheck_refuses_sessions_that_lose_or_change_messages(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	for want, set := range map[string][2]string{
		"default_transaction_read_only is on": {"default_transaction_read_only", "on"},
		"client_encoding is LATIN1":           {"client_encoding", "LATIN1"},
		"bytea_output is escape":              {"bytea_output", "escape"},
		"datestyle is German":                 {"datestyle", "German"},
	} {
		s := sessions(t, pool, pgx.QueryExecModeExec, map[string]string{set[0]: set[1]})
		if err := s.Check(t.Context()); !contains(err, want) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s = %s: %v", set[0], set[1], err)
		}
	}
	// They do not matter where values travel in binary.
	if err := sessions(t, pool, pgx.QueryExecModeCacheStatement, map[string]string{"bytea_output": "escape", "datestyle": "German"}).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCheck_refuses_tables_that_lose_or_change_messages(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	s := postgres.New(pool, postgres.Options{})
	for _, c := range []struct{ set, want, unset string }{
		{`ALTER SEQUENCE millbridge.outbox_seq INCREMENT -1`, "INCREMENT -1", `ALTER SEQUENCE millbridge.outbox_seq INCREMENT 1`},
		{`ALTER SEQUENCE millbridge.outbox_seq CYCLE`, "NO CYCLE", `ALTER SEQUENCE millbridge.outbox_seq NO CYCLE`},
		{`ALTER SEQUENCE millbridge.outbox_seq MAXVALUE 1000000`, "ends at 1000000", `ALTER SEQUENCE millbridge.outbox_seq NO MAXVALUE`},
		{`CREATE TRIGGER t BEFORE UPDATE ON millbridge.shards FOR EACH ROW EXECUTE FUNCTION f()`, "millbridge.shards has a BEFORE ROW trigger (t)", `DROP TRIGGER t ON millbridge.shards`},
		{`CREATE TRIGGER t BEFORE INSERT ON millbridge.inbox FOR EACH ROW EXECUTE FUNCTION f()`, "millbridge.inbox has a BEFORE ROW trigger (t)", `DROP TRIGGER t ON millbridge.inbox`},
		{`CREATE RULE r AS ON INSERT TO millbridge.outbox DO INSTEAD NOTHING`, "millbridge.outbox has a rule (r)", `DROP RULE r ON millbridge.outbox`},
		{`ALTER TABLE millbridge.outbox SET UNLOGGED`, "millbridge.outbox is UNLOGGED", `ALTER TABLE millbridge.outbox SET LOGGED`},
		{`ALTER TABLE millbridge.keys SET UNLOGGED`, "millbridge.keys is UNLOGGED", `ALTER TABLE millbridge.keys SET LOGGED`},
		{`ALTER TABLE millbridge.epoch SET LOGGED`, "epoch is not UNLOGGED", `ALTER TABLE millbridge.epoch SET UNLOGGED`},
	} {
		exec(c.set)
		if err := s.Check(t.Context()); !contains(err, c.want) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: %v, want %q", c.set, err, c.want)
		}
		exec(c.unset)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", c.unset, err)
		}
	}
}

// Row level security hides rows from a role that does not own the tables.
func TestCheck_refuses_rows_that_are_hidden(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	role := pool.Config().ConnConfig.Database + "_role"
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "$role", role)); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE ROLE $role LOGIN PASSWORD 'x'`)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := pool.Exec(context.WithoutCancel(t.Context()), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	exec(`GRANT USAGE ON SCHEMA millbridge TO $role`)
	exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA millbridge TO $role`)
	exec(`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA millbridge TO $role`)
	other := repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "x" })
	defer other.Close()
	s := postgres.New(other, postgres.Options{})
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.CheckRights(t.Context()); err != nil {
		t.Error(err)
	}
	exec(`ALTER TABLE millbridge.outbox ENABLE ROW LEVEL SECURITY`)
	exec(`REVOKE DELETE ON millbridge.outbox FROM $role`)
	exec(`REVOKE USAGE ON SEQUENCE millbridge.outbox_seq FROM $role`)
	if err := s.Check(t.Context()); !contains(err, "millbridge.outbox has row level security") || schema.KindOf(err) != schema.Permanent {
		t.Errorf("hidden rows: %v", err)
	}
	for _, want := range []string{"role " + role + " lacks", "DELETE on millbridge.outbox,", "USAGE on millbridge.outbox_seq"} {
		if err := s.CheckRights(t.Context()); !contains(err, want) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("missing rights: %v, want %q", err, want)
		}
	}
}

func TestWeakSettings(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	if notes, err := postgres.New(pool, postgres.Options{}).WeakSettings(t.Context()); err != nil || len(notes) != 0 {
		t.Errorf("of a good server: %q, %v", notes, err)
	}
	s := sessions(t, pool, pgx.QueryExecModeCacheStatement, map[string]string{
		"synchronous_commit": "off", "statement_timeout": "1s", "idle_in_transaction_session_timeout": "5s",
	})
	notes, err := s.WeakSettings(t.Context())
	if err != nil || len(notes) != 3 {
		t.Fatalf("%q, %v", notes, err)
	}
	for _, want := range []string{"synchronous_commit = off", "statement_timeout = 1s", "idle_in_transaction_session_timeout = 5s"} {
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("%q does not say %s", notes, want)
		}
	}
}

// Behind a pooler the driver's default breaks at random, which is said before it happens.
func TestDurability_names_what_a_crash_could_lose(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	for commit, want := range map[string]schema.Durability{"on": schema.OnPostgres, "local": schema.OnPostgres, "off": schema.OnPostgresAsync} {
		s := sessions(t, pool, pgx.QueryExecModeCacheStatement, map[string]string{"synchronous_commit": commit})
		level, weak, err := s.Durability(t.Context())
		if err != nil || level != want || (weak != "") != (want != schema.OnPostgres) || weak != "" && !strings.Contains(weak, "synchronous_commit = off") {
			t.Errorf("synchronous_commit = %s: %v because of %q, %v; want %v", commit, level, weak, err, want)
		}
	}
}

func TestC27_the_wrong_query_mode_is_noted(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	for exec, want := range map[string]bool{"cache_statement": true, "cache_describe": false} {
		notes, err := postgres.New(behindPgBouncer(t, pool, "transaction", exec), postgres.Options{}).WeakSettings(t.Context())
		if err != nil {
			t.Error(err)
		}
		if got := strings.Contains(strings.Join(notes, "\n"), "default_query_exec_mode"); got != want {
			t.Errorf("%s: %q", exec, notes)
		}
	}
}

// A server that gives up durability for speed, which tests of others must not meet.
func TestWeakSettings_of_the_server(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := postgres.New(pool, postgres.Options{})
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"fsync = off", "full_page_writes = off", "autovacuum = off", "synchronous_commit = local", "synchronous_standby_names = 'other'"} {
		if _, err := pool.Exec(t.Context(), `ALTER SYSTEM SET `+set); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		notes, err := s.WeakSettings(t.Context())
		text := strings.Join(notes, "\n")
		for _, want := range []string{"fsync = off", "full_page_writes = off", "autovacuum = off", "synchronous standbys and synchronous_commit = local"} {
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("%q does not say %s", notes, want)
			}
		}
		return err
	})
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("weaker settings are allowed: %v", err)
	}
}
