package main

import (
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

func TestRun_commits_the_order_with_its_messages(t *testing.T) {
	t.Parallel()
	pool := testkit.Postgres(t)
	if err := run(t.Context(), testkit.PostgresURL(pool)); err != nil {
		t.Fatal(err)
	}
	rows, err := postgres.New(pool, postgres.Options{}).ListOutbox(t.Context(), schema.RowFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, r := range rows {
		subjects = append(subjects, r.Subject)
	}
	if len(subjects) != 2 || subjects[0] != "jobs.crm.customer.ordered" || subjects[1] != "events.public.order.placed" {
		t.Errorf("outbox holds %v", subjects)
	}
	var orders int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&orders); err != nil || orders != 1 {
		t.Errorf("%d orders, %v; want 1", orders, err)
	}
}
