package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

func setupSQL(t *testing.T) (*postgres.Store, *pgxpool.Pool, *sql.DB) {
	t.Helper()
	s, pool := setup(t)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, pool, db
}

func beginSQL(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestSQL(t *testing.T) {
	t.Parallel()
	s, _, db := setupSQL(t)
	a := schema.NewJob("crm", "create", []byte{0, 255}, schema.WithKey("k"), schema.WithOrderingKey("o"))
	b := schema.NewJob("crm", "create", []byte{0, 255}, schema.WithKey("k"))
	later := schema.NewJob("crm", "create", nil, schema.WithDueAt(time.Now().Add(time.Hour)))
	gone := schema.NewJob("crm", "create", nil, schema.WithDueAt(time.Now().Add(time.Hour)))
	for _, keep := range []bool{false, true} {
		tx := beginSQL(t, db)
		receipts, err := s.SQL().Append(t.Context(), tx, []schema.Envelope{a, b, later, gone})
		if want := []schema.Receipt{{ID: a.ID}, {ID: a.ID, Existing: true}, {ID: later.ID}, {ID: gone.ID}}; err != nil || !slices.Equal(receipts, want) {
			t.Fatalf("receipts %+v, %v; want %+v", receipts, err, want)
		}
		if err := s.SQL().Reschedule(t.Context(), tx, later.ID, time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := s.SQL().Cancel(t.Context(), tx, gone.ID); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if keep {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if got := len(outbox(t, s)); (got == 1) != keep {
			t.Fatalf("%d messages, want %v to be kept", got, keep)
		}
	}
	if res, err := s.Tend(t.Context(), 10); err != nil || res.Moved != 1 || res.NextDue != 0 {
		t.Errorf("%+v, %v, want the rescheduled message moved and none left", res, err)
	}
	tx := beginSQL(t, db)
	_, err := s.SQL().Append(t.Context(), tx, []schema.Envelope{schema.NewEvent("a", nil), schema.NewJob("crm", "create", nil, schema.WithKey("k"))})
	if !errors.Is(err, schema.ErrKeyReused) {
		t.Errorf("error %v, want the key to be refused", err)
	}
	if err := s.SQL().Cancel(t.Context(), tx, gone.ID); !errors.Is(err, schema.ErrNotFound) {
		t.Errorf("error %v, want not found", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, want := outbox(t, s), []string{a.ID, later.ID}; !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}

func publisher(t *testing.T, s *postgres.Store, db wmsql.ContextExecutor) *wmsql.Publisher {
	t.Helper()
	p, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: s.SchemaAdapter()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSchemaAdapter_publishes_in_the_callers_transaction(t *testing.T) {
	t.Parallel()
	s, _, db := setupSQL(t)
	made := make([]*message.Message, 3)
	for i := range made {
		made[i] = message.NewMessage(fmt.Sprint("id-", i), []byte{byte(i), 0})
		made[i].Metadata.Set("name", fmt.Sprint(i))
		made[i].SetContext(schema.ContextWithOptions(t.Context(), schema.WithOrderingKey("o"), schema.WithTenant("t")))
	}
	for _, keep := range []bool{false, true} {
		tx := beginSQL(t, db)
		p := publisher(t, s, tx)
		for topic, msgs := range map[string][]*message.Message{"jobs.crm.create": made[:2], "events.public.order.paid": made[2:], "events.a": nil} {
			if err := p.Publish(topic, msgs...); err != nil {
				t.Fatal(err)
			}
		}
		end := tx.Rollback
		if keep {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := s.ListOutbox(t.Context(), schema.RowFilter{})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v; want 3", len(rows), err)
	}
	for i, id := range []string{"id-0", "id-1", "id-2"} {
		n := slices.IndexFunc(rows, func(r schema.Row) bool { return r.ID == schema.RowID(id) })
		if n < 0 {
			t.Fatalf("no message %s", id)
		}
		e, err := rows[n].Envelope()
		want := "job.crm.create"
		if i == 2 {
			want = "event.public.order.paid"
		}
		if err != nil || e.ID != id || e.Type() != want || e.Metadata["name"] != fmt.Sprint(i) || !slices.Equal(e.Payload, []byte{byte(i), 0}) ||
			e.OrderingKey != "o" || e.Tenant != "t" || e.Time.IsZero() {
			t.Errorf("message %+v, %v", e, err)
		}
	}
}

func TestSchemaAdapter_refuses(t *testing.T) {
	t.Parallel()
	s, _, db := setupSQL(t)
	p := publisher(t, s, db)
	for name, c := range map[string]struct {
		topic string
		id    string
		opts  []schema.Option
		field string
	}{
		"topic":  {"orders", "id", nil, "topic"},
		"target": {"jobs.CRM.create", "id", nil, "target"},
		"id":     {"jobs.crm.create", "not an id", nil, "id"},
		"key":    {"jobs.crm.create", "id", []schema.Option{schema.WithKey("k")}, "key"},
		"due":    {"jobs.crm.create", "id", []schema.Option{schema.WithDueAt(time.Now())}, "due_at"},
	} {
		good, bad := message.NewMessage("good", nil), message.NewMessage(c.id, nil)
		bad.SetContext(schema.ContextWithOptions(t.Context(), c.opts...))
		err := p.Publish(c.topic, good, bad)
		var invalid *schema.ValidationError
		if !errors.As(err, &invalid) || invalid.Faults[0].Field != c.field {
			t.Errorf("%s: error %v, want a fault of %s", name, err, c.field)
		}
	}
	if got := outbox(t, s); len(got) != 0 {
		t.Errorf("outbox %v, want nothing of what was refused", got)
	}
}

// Ordering keys are locked in the one statement that the adapter has.
func TestSchemaAdapter_keeps_the_order_of_commits(t *testing.T) {
	t.Parallel()
	s, pool, db := setupSQL(t)
	ctx := schema.ContextWithOptions(t.Context(), schema.WithOrderingKey("o"))
	msg := func(id string) *message.Message {
		m := message.NewMessage(id, nil)
		m.SetContext(ctx)
		return m
	}
	first, second := beginSQL(t, db), beginSQL(t, db)
	if err := publisher(t, s, first).Publish("jobs.crm.create", msg("1")); err != nil {
		t.Fatal(err)
	}
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { err = publisher(t, s, second).Publish("jobs.crm.create", msg("3")) })
	blocked(t, pool, 1)
	if err := publisher(t, s, first).Publish("jobs.crm.create", msg("2")); err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, want := outbox(t, s), []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestSchemaAdapter_is_for_publishing_only(t *testing.T) {
	t.Parallel()
	s, _, db := setupSQL(t)
	a := s.SchemaAdapter()
	if qs := a.SchemaInitializingQueries("jobs.crm.create"); len(qs) != 0 {
		t.Errorf("%d queries to make tables, want none", len(qs))
	}
	q := a.SelectQuery("jobs.crm.create", "", wmsql.DefaultPostgreSQLOffsetsAdapter{})
	rows, err := db.QueryContext(t.Context(), q.Query, q.Args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatalf("no row, so that the error would not be seen: %v", rows.Err())
	}
	if _, err := a.UnmarshalMessage(rows); !contains(err, "subscribe to JetStream") {
		t.Errorf("error %v, want it to say where to subscribe", err)
	}
}
