package tests

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// as is a pool on the same database whose every session works with a role's rights alone.
func as(t *testing.T, owner *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	cfg := owner.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// grantRoles runs deploy/postgres-roles.sql with role names of this test's own, since roles belong to the whole server.
func grantRoles(t *testing.T, owner *pgxpool.Pool) (publisher, bridge, reader string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/postgres-roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	prefix := "millbridge_" + strings.ToLower(rand.Text()[:8]) + "_"
	names := []string{prefix + "publisher", prefix + "bridge", prefix + "reader"}
	script := string(text)
	for _, name := range names {
		script = strings.ReplaceAll(script, strings.Replace(name, prefix, "millbridge_", 1), name)
	}
	if _, err := owner.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("postgres-roles.sql: %v", err)
	}
	t.Cleanup(func() {
		for _, name := range names {
			if _, err := owner.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Errorf("drop %s: %v", name, err)
			}
		}
	})
	return names[0], names[1], names[2]
}

func TestDeploy_sql_roles_have_the_rights_they_need_and_no_more(t *testing.T) {
	t.Parallel()
	owner := testkit.Postgres(t)
	publisher, bridge, reader := grantRoles(t, owner)
	pubPool, bridgePool, readPool := as(t, owner, publisher), as(t, owner, bridge), as(t, owner, reader)
	ctx := t.Context()

	pub := postgres.New(pubPool, postgres.Options{})
	if err := pub.Check(ctx); err != nil {
		t.Errorf("check as %s: %v", publisher, err)
	}
	later := schema.WithDueAt(time.Now().Add(time.Hour))
	plain, keyed := schema.NewJob("crm", "sync", 1), schema.NewJob("crm", "sync", 2, schema.WithKey("k"), schema.WithOrderingKey("o"))
	cancelled, moved := schema.NewJob("crm", "sync", 3, later, schema.WithKey("c")), schema.NewJob("crm", "sync", 4, later)
	err := pub.InTx(ctx, func(tx pgx.Tx) error {
		if _, err := pub.Append(ctx, tx, []schema.Envelope{plain, keyed, cancelled, moved}); err != nil {
			return err
		}
		again := schema.NewJob("crm", "sync", 2, schema.WithKey("k"), schema.WithOrderingKey("o"))
		receipts, err := pub.Append(ctx, tx, []schema.Envelope{again})
		if err != nil {
			return err
		}
		if len(receipts) != 1 || !receipts[0].Existing || receipts[0].ID != keyed.ID {
			t.Errorf("the same key again: %+v, want the id of the first", receipts)
		}
		return errors.Join(pub.Cancel(ctx, tx, cancelled.ID), pub.Reschedule(ctx, tx, moved.ID, time.Now().Add(2*time.Hour)))
	})
	if err != nil {
		t.Errorf("publish as %s: %v", publisher, err)
	}
	for _, secret := range []string{
		"SELECT payload FROM millbridge.outbox", "SELECT payload FROM millbridge.scheduled", "SELECT * FROM millbridge.inbox",
		"DELETE FROM millbridge.outbox", "UPDATE millbridge.meta SET max_payload = 1", "UPDATE millbridge.shards SET batch = 0",
	} {
		if _, err := pubPool.Exec(ctx, secret); !denied(err) {
			t.Errorf("%s as %s: %v, want permission denied", secret, publisher, err)
		}
	}

	work := postgres.New(bridgePool, postgres.Options{})
	if err := work.Check(ctx); err != nil {
		t.Errorf("check as %s: %v", bridge, err)
	}
	shards, err := work.Shards(ctx, schema.Jobs)
	if err != nil || len(shards) == 0 {
		t.Fatalf("shards as %s: %v, %v", bridge, shards, err)
	}
	if _, ok, err := work.Acquire(ctx, shards[0].ShardRef, schema.NewID(), time.Minute); err != nil || !ok {
		t.Errorf("acquire as %s: %v, %v", bridge, ok, err)
	}
	if _, err := work.NewReader(shards[0].ShardRef, len(shards)).Read(ctx, schema.ReadParams{MaxRows: 10, MaxBytes: 1 << 20}); err != nil {
		t.Errorf("read as %s: %v", bridge, err)
	}
	if _, err := work.Tend(ctx, 10); err != nil {
		t.Errorf("tend as %s: %v", bridge, err)
	}
	if _, err := bridgePool.Exec(ctx, "DROP TABLE millbridge.outbox"); !denied(err) {
		t.Errorf("drop a table as %s: %v, want permission denied", bridge, err)
	}

	look := postgres.New(readPool, postgres.Options{})
	if got, err := look.Backlogs(ctx); err != nil || len(got) == 0 {
		t.Errorf("backlogs as %s: %v, %v", reader, got, err)
	}
	if _, err := look.ListOutbox(ctx, schema.RowFilter{}); err != nil {
		t.Errorf("list as %s: %v", reader, err)
	}
	if _, err := readPool.Exec(ctx, "DELETE FROM millbridge.outbox"); !denied(err) {
		t.Errorf("delete as %s: %v, want permission denied", reader, err)
	}
}

// denied says whether PostgreSQL refused for want of a right: insufficient_privilege.
func denied(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "42501"
}
