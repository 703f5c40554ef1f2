package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// objects counts what is in our schema, and in the one that a careless search path would have written to.
func objects(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('millbridge', 'public')`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestC26_replicas_race_to_migrate(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	for round := range 3 {
		var mu sync.Mutex
		worked := 0
		var wg sync.WaitGroup
		for range 8 {
			s := postgres.New(repool(t, pool, func(*pgxpool.Config) {}), postgres.Options{})
			wg.Go(func() {
				from, to, err := s.MigrateUp(t.Context())
				if err != nil || to != 1 {
					t.Errorf("migrated from %d to %d, %v", from, to, err)
				}
				if err := s.Check(t.Context()); err != nil {
					t.Error(err)
				}
				if from == 0 {
					mu.Lock()
					worked++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if worked != 1 {
			t.Errorf("round %d: %d replicas migrated, want 1", round, worked)
		}
		if err := postgres.New(pool, postgres.Options{}).MigrateDown(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if n := objects(t, pool); n != 0 {
			t.Errorf("%d tables and the like are left", n)
		}
	}
}

func TestC26_killed_in_the_middle_of_migrating(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	s := postgres.New(pool, postgres.Options{})
	// Somebody else is about to make a table of the same name, so that migrating stops halfway.
	blocker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback(context.Background()) //nolint:errcheck // rolled back below
	if _, err := pool.Exec(t.Context(), `CREATE SCHEMA millbridge`); err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), `CREATE TABLE millbridge.inbox (n integer)`); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, _, err := s.MigrateUp(t.Context())
		failed <- err
	}()
	var killed bool
	testkit.Eventually(t, time.Minute, func() error {
		err := pool.QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()`).Scan(&killed)
		return err
	})
	if err := <-failed; err == nil || !killed {
		t.Fatalf("the migration was not killed: %v, %v", killed, err)
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := objects(t, pool); n != 0 {
		t.Errorf("%d tables and the like are left of a migration that was killed", n)
	}
	if from, to, err := s.MigrateUp(t.Context()); from != 0 || to != 1 || err != nil {
		t.Errorf("migrated from %d to %d, %v, after that", from, to, err)
	}
}

func TestMigrateUp_gives_up_waiting(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	err := postgres.New(pool, postgres.Options{}).InTx(t.Context(), func(tx pgx.Tx) error {
		const migrating = 0x6d696c6c_00000001 // the lock that it waits for
		if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1::bigint)`, migrating); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _, err := postgres.New(pool, postgres.Options{}).MigrateUp(ctx)
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want it to wait for the other until its time is up", err)
	}
}

// A DBA makes the schema; the program's role has no right to make one, nor anything in public. At run time it needs no
// DDL at all.
func TestMigrateUp_as_a_role_with_few_rights(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	database := pool.Config().ConnConfig.Database
	owner, user := database+"_owner", database+"_user"
	for _, sql := range []string{
		`CREATE ROLE ` + owner + ` LOGIN PASSWORD 'x'`, `CREATE ROLE ` + user + ` LOGIN PASSWORD 'x'`,
		`REVOKE CREATE, TEMP ON DATABASE ` + database + ` FROM PUBLIC`, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`,
		`CREATE SCHEMA millbridge AUTHORIZATION ` + owner,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{
			`DROP OWNED BY ` + owner, `DROP OWNED BY ` + user, `DROP ROLE ` + owner, `DROP ROLE ` + user,
		} {
			if _, err := pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	as := func(role string) *postgres.Store {
		return postgres.New(repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "x" }), postgres.Options{})
	}
	o := as(owner)
	if _, _, err := o.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`GRANT USAGE ON SCHEMA millbridge TO ` + user,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA millbridge TO ` + user,
		`GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA millbridge TO ` + user,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s := as(user)
	if err := s.ForceFlush(t.Context()); err != nil {
		t.Errorf("force commits to disk as a role with few rights: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := schema.NewJob("crm", "create", nil, schema.WithOrderingKey("k"), schema.WithKey("k"))
	if err := s.InTx(t.Context(), func(tx pgx.Tx) error { _, err := s.Append(t.Context(), tx, []schema.Envelope{e}); return err }); err != nil {
		t.Fatal(err)
	}
	shard := schema.ShardRef{Stream: schema.Jobs, Generation: 1, Shard: int(e.Slot()) >> 15}
	rows, err := s.NewReader(shard, 2).Read(t.Context(), schema.ReadParams{})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if _, ok, err := s.Acquire(t.Context(), shard, "me", time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := s.Remove(t.Context(), schema.RemoveParams{ShardRef: shard, Owner: "me", Batch: 1, Total: 1, Names: []schema.RowName{rows[0].Name()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tend(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if err := s.MigrateDown(t.Context(), false); err == nil {
		t.Error("a role without DDL rights dropped the tables")
	}
	if err := o.MigrateDown(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if n := objects(t, pool); n != 0 {
		t.Errorf("%d tables and the like are left", n)
	}
}

// Users may run the files with a tool of their own.
func TestMigrations_run_by_another_tool(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	s := postgres.New(pool, postgres.Options{})
	for _, pattern := range []string{"*.up.sql", "*.down.sql", "*.up.sql"} {
		files, err := fs.Glob(postgres.Migrations(), pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("files %v, %v", files, err)
		}
		for _, name := range files {
			content, err := fs.ReadFile(postgres.Migrations(), name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), string(content), pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if from, to, err := s.MigrateUp(t.Context()); from != 1 || to != 1 || err != nil {
		t.Errorf("migrated from %d to %d, %v", from, to, err)
	}
}

func TestCheck_settings_that_break_order(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	s := postgres.New(pool, postgres.Options{})
	for _, c := range []struct{ set, want, unset string }{
		{`ALTER SEQUENCE millbridge.outbox_seq CACHE 10`, "CACHE", `ALTER SEQUENCE millbridge.outbox_seq CACHE 1`},
		{`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`, "", ``},
		{`CREATE TRIGGER t BEFORE INSERT ON millbridge.outbox FOR EACH ROW EXECUTE FUNCTION f()`, "BEFORE ROW", `DROP TRIGGER t ON millbridge.outbox`},
		{`CREATE TRIGGER t BEFORE INSERT ON millbridge.outbox FOR EACH STATEMENT EXECUTE FUNCTION f()`, "", `DROP TRIGGER t ON millbridge.outbox`},
		{`CREATE TRIGGER t AFTER INSERT ON millbridge.outbox FOR EACH ROW EXECUTE FUNCTION f()`, "", ``},
	} {
		if _, err := pool.Exec(t.Context(), c.set); err != nil {
			t.Fatal(err)
		}
		err := s.Check(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !contains(err, c.want)) {
			t.Errorf("%s: %v, want %q", c.set, err, c.want)
		}
		if c.want != "" && schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: kind %v, want permanent", c.set, schema.KindOf(err))
		}
		if c.unset != "" {
			if _, err := pool.Exec(t.Context(), c.unset); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCheck_encoding(t *testing.T) {
	t.Parallel()
	pool := testkit.EmptyPostgres(t)
	name := pool.Config().ConnConfig.Database + "_latin"
	if _, err := pool.Exec(t.Context(), `CREATE DATABASE `+name+` ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	})
	s := postgres.New(repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Database = name }), postgres.Options{})
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); !contains(err, "LATIN1") {
		t.Errorf("error %v, want it to name the encoding", err)
	}
}

func TestInfo_knows_a_copy(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	s := postgres.New(pool, postgres.Options{})
	info, err := s.Info(t.Context())
	if err != nil || !info.Bound {
		t.Fatalf("%+v, %v, want it bound", info, err)
	}
	for _, change := range []string{"system_id = system_id + 1", "system_id = system_id - 1, database_oid = 1"} {
		if _, err := pool.Exec(t.Context(), `UPDATE millbridge.meta SET `+change); err != nil {
			t.Fatal(err)
		}
		if copied, err := s.Info(t.Context()); err != nil || copied.Bound || copied.ID != info.ID {
			t.Errorf("%s: %+v, %v, want the same id, not bound", change, copied, err)
		}
	}
}
