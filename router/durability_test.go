package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// A job type that needs more than there is keeps the bridge from running, and the error names what is too weak.
func TestDurability_too_weak_is_refused(t *testing.T) {
	t.Parallel()
	async := func(t *testing.T) *bench {
		b := onPostgres(t)
		cfg, err := pgxpool.ParseConfig(testkit.DirectPostgresURL(t, b.postgres))
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		b.store = postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
		return b
	}
	for name, c := range map[string]struct {
		open     func(*testing.T) *bench
		fine     schema.Durability
		tooWeak  schema.Durability
		weakWire string
	}{
		"sqlite":                {onSQLite, schema.OnSQLite, schema.OnPostgresAsync, "SQLite"},
		"asynchronous postgres": {async, schema.OnPostgresAsync, schema.OnPostgres, "synchronous_commit = off"},
		"one replica":           {onPostgres, schema.OnPostgres, schema.OnPostgresR3, "stream MB_JOBS has 1 replica, needs 3"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b := c.open(t)
			target := func(needs schema.Durability) *router.Bridge {
				bridge := b.open()
				var actions handlers.Actions
				charge := schema.JobType[struct{}]{Target: "billing", Action: "charge", Needs: needs}
				handlers.OnJob(&actions, charge, func(context.Context, struct{}, string) error { return nil })
				if err := bridge.Target(handlers.Target{Name: "billing", Handler: &actions}); err != nil {
					t.Fatal(err)
				}
				return bridge
			}
			if _, err := target(c.fine).Drain(t.Context()); err != nil {
				t.Errorf("with what %v gives: %v", c.fine, err)
			}
			bridge := target(c.tooWeak)
			_, drained := bridge.Drain(t.Context())
			for how, err := range map[string]error{"run": bridge.Run(t.Context()), "drain": drained} {
				if !errors.Is(err, publishers.ErrTooWeak) || schema.KindOf(err) != schema.Permanent {
					t.Fatalf("%s: %v", how, err)
				}
				for _, want := range []string{"job billing.charge needs " + c.tooWeak.String(), c.weakWire, c.fine.String()} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v lacks %q", how, err, want)
					}
				}
			}
		})
	}
}
