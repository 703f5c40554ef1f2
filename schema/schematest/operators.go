package schematest

import (
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testOperators[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("lists", func(t *testing.T) {
		s := start(t, open)
		var envs []schema.Envelope
		add := func(id string, e schema.Envelope) {
			e.ID = id
			envs = append(envs, e)
		}
		add("crm1", schema.NewJob("crm", "create", []byte("x")))
		add("erp1", schema.NewJob("erp", "create", nil))
		add("paid1", schema.NewEvent("order.paid", nil))
		add("paid2", schema.NewEvent("order.paid", nil, schema.WithPublic()))
		replay := schema.NewEvent("order.paid", nil)
		replay.Replay = &schema.Replay{Handler: "mailer", Of: "x", Number: 1}
		add("replay1", replay)
		add("crm2", schema.NewJob("crm", "update", nil))
		s.publish(envs...)
		list := func(f schema.RowFilter) []string {
			rows, err := s.Store.ListOutbox(s.ctx, f)
			s.must(err)
			return s.ids(rows)
		}
		all, err := s.Store.ListOutbox(s.ctx, schema.RowFilter{})
		s.must(err)
		for _, c := range []struct {
			f    schema.RowFilter
			want []string
		}{
			{schema.RowFilter{}, []string{"crm1", "erp1", "paid1", "paid2", "replay1", "crm2"}},
			{schema.RowFilter{Stream: schema.Events}, []string{"paid1", "paid2"}},
			{schema.RowFilter{Group: "crm"}, []string{"crm1", "crm2"}},
			{schema.RowFilter{Group: "order.paid"}, []string{"paid1", "paid2"}},
			{schema.RowFilter{Group: "mailer"}, []string{"replay1"}},
			{schema.RowFilter{Group: "order"}, []string{}},
			{schema.RowFilter{ID: "erp1"}, []string{"erp1"}},
			{schema.RowFilter{ID: "nobody"}, []string{}},
			{schema.RowFilter{Limit: 2}, []string{"crm1", "erp1"}},
			{schema.RowFilter{Limit: 2, After: all[1].Seq}, []string{"paid1", "paid2"}},
			{schema.RowFilter{Stream: schema.Jobs, Group: "crm", After: all[0].Seq}, []string{"crm2"}},
		} {
			if got := list(c.f); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %v, want %v", c.f, got, c.want)
			}
		}
		if r := all[0]; string(r.Payload) != "x" || r.Stream != schema.Jobs || len(r.Header) == 0 || r.CreatedAt.IsZero() {
			t.Errorf("row %+v", r)
		}
		for range 120 {
			s.publish(schema.NewJob("crm", "a", nil))
		}
		if got := list(schema.RowFilter{}); len(got) != 100 {
			t.Errorf("%d rows without a limit, want 100", len(got))
		}
	})

	t.Run("backlogs", func(t *testing.T) {
		s := start(t, open)
		if list, err := s.Store.Backlogs(s.ctx); len(list) != 0 || err != nil {
			t.Fatalf("backlogs %v, %v of nothing", list, err)
		}
		replay := schema.NewJob("erp", "create", nil)
		replay.Replay = &schema.Replay{Handler: "erp", Of: "x", Number: 1}
		s.publish(schema.NewJob("crm", "create", nil), schema.NewJob("crm", "update", nil), schema.NewJob("erp", "create", nil), replay,
			schema.NewEvent("order.paid", nil), schema.NewEvent("order.paid", nil, schema.WithPublic()), schema.NewEvent("a", nil),
			schema.NewJob("crm", "create", nil, schema.WithDueAt(time.Now().Add(time.Hour))))
		row := s.waiting(schema.Jobs)[0]
		s.acquire(s.shardOf(row), "me")
		s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: s.shardOf(row), Owner: "me", Name: row.Name(), Reason: "r"}))
		s.age(90 * time.Second)
		s.publish(schema.NewJob("crm", "create", nil))
		type group struct {
			where  string
			stream schema.Stream
			group  string
		}
		want := map[group]int64{
			{"outbox", schema.Jobs, "crm"}: 2, {"outbox", schema.Jobs, "erp"}: 2,
			{"outbox", schema.Events, "order.paid"}: 2, {"outbox", schema.Events, "a"}: 1,
			{"scheduled", schema.Jobs, "crm"}: 1, {"parked", schema.Jobs, "crm"}: 1,
		}
		list, err := s.Store.Backlogs(s.ctx)
		s.must(err)
		for _, b := range list {
			g := group{b.Where, b.Stream, b.Group}
			if want[g] != b.Rows {
				t.Errorf("%+v, want %d rows", b, want[g])
			}
			delete(want, g)
			if b.Oldest < 89*time.Second || b.Oldest > 3*time.Minute {
				t.Errorf("%+v, want the oldest to be 90 s old", b)
			}
		}
		if len(want) > 0 {
			t.Errorf("missing %v", want)
		}
	})
}
