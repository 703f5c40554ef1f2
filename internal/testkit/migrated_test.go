package testkit_test

import (
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
)

func TestStores_are_migrated_and_differ(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for range 2 {
		pg, lite := testkit.PostgresStore(t), testkit.SQLiteStore(t)
		for name, err := range map[string]error{"PostgreSQL": pg.Check(t.Context()), "SQLite": lite.Check(t.Context())} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		a, err := pg.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := lite.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !a.Bound || !b.Bound {
			t.Errorf("bound: PostgreSQL %v, SQLite %v; want both to be the database their id was given to", a.Bound, b.Bound)
		}
		ids[a.ID], ids[b.ID] = true, true
	}
	if len(ids) != 4 {
		t.Errorf("outbox ids %v, want four different ones", ids)
	}
}
