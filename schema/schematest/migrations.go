package schematest

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testMigrations[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("up twice and down", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		ctx := t.Context()
		s := &suite[Tx]{h, t, ctx}
		s.wants(h.Store.Check(ctx), schema.ErrNotMigrated)
		have, want, err := h.Store.SchemaVersion(ctx)
		s.must(err)
		if have != 0 || want < 1 {
			t.Fatalf("version %d, want %d, before the first migration", have, want)
		}
		for _, before := range []int{0, want} {
			from, to, err := h.Store.MigrateUp(ctx)
			s.must(err)
			if from != before || to != want {
				t.Fatalf("migrated from %d to %d, want from %d to %d", from, to, before, want)
			}
		}
		s.must(h.Store.Check(ctx))
		s.must(h.Store.MigrateDown(ctx, false))
		s.must(h.Store.MigrateDown(ctx, false))
		if have, _, err := h.Store.SchemaVersion(ctx); have != 0 || err != nil {
			t.Fatalf("version %d, %v, after the way down", have, err)
		}
		_, _, err = h.Store.MigrateUp(ctx)
		s.must(err)
		s.must(h.Store.Check(ctx))
	})

	t.Run("down refuses while messages wait", func(t *testing.T) {
		s := start(t, open)
		e := schema.NewJob("crm", "create", nil)
		s.publish(e)
		s.wants(s.Store.MigrateDown(s.ctx, false), schema.ErrNotEmpty)
		row := s.waiting(schema.Jobs)[0]
		s.acquire(s.shardOf(row), "me")
		s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: s.shardOf(row), Owner: "me", Name: row.Name(), Reason: "r"}))
		s.wants(s.Store.MigrateDown(s.ctx, false), schema.ErrNotEmpty)
		s.must(s.Store.DropParked(s.ctx, row.Name()))
		s.publish(schema.NewJob("crm", "create", nil, schema.WithDueAt(time.Now().Add(time.Hour)), schema.WithID("later")))
		s.wants(s.Store.MigrateDown(s.ctx, false), schema.ErrNotEmpty)
		s.must(s.Store.InTx(s.ctx, func(tx Tx) error { return s.Store.Cancel(s.ctx, tx, "later") }))
		saga := func(version int, status schema.SagaStatus) {
			t.Helper()
			s.must(s.Store.Unit(s.ctx, func(u schema.Unit) error {
				return u.SaveSaga(s.ctx, schema.SagaRecord{Saga: "loan", ID: "a", Status: status, Version: version}, schema.SagaEvent{})
			}))
		}
		saga(1, schema.SagaStuck)
		s.wants(s.Store.MigrateDown(s.ctx, false), schema.ErrNotEmpty)
		saga(2, schema.SagaDone)
		// The inbox is history.
		_, err := s.Store.Claim(s.ctx, schema.Run{Key: schema.InboxKey{Handler: "h", Key: "k"}, Owner: "o", MessageID: "m"})
		s.must(err)
		s.must(s.Store.MigrateDown(s.ctx, false))
	})

	t.Run("down can be forced", func(t *testing.T) {
		s := start(t, open)
		s.publish(schema.NewJob("crm", "create", nil))
		s.must(s.Store.MigrateDown(s.ctx, true))
		_, err := s.tryPublishAnyway(schema.NewJob("crm", "create", nil))
		s.wants(err, schema.ErrNotMigrated)
	})

	t.Run("a newer schema is refused", func(t *testing.T) {
		s := start(t, open)
		s.must(s.SetVersion(s.ctx, 1000))
		s.wants(s.Store.Check(s.ctx), schema.ErrSchemaTooNew)
		_, _, err := s.Store.MigrateUp(s.ctx)
		s.wants(err, schema.ErrSchemaTooNew)
		s.wants(s.Store.MigrateDown(s.ctx, true), schema.ErrSchemaTooNew)
		if have, _, err := s.Store.SchemaVersion(s.ctx); have != 1000 || err != nil {
			t.Fatalf("version %d, %v, want 1000", have, err)
		}
	})

	t.Run("info", func(t *testing.T) {
		s := start(t, open)
		info, err := s.Store.Info(s.ctx)
		s.must(err)
		if len(info.ID) != 16 || !info.Bound || info.MaxPayload != schema.DefaultPayload {
			t.Errorf("%+v, want an id of 16, bound, and the default payload limit", info)
		}
		for _, r := range info.ID {
			if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
				t.Errorf("id %q has %q", info.ID, r)
			}
		}
		other, err := start2(t, open).Store.Info(s.ctx)
		s.must(err)
		if other.ID == info.ID {
			t.Errorf("two outboxes have the id %s", info.ID)
		}
		for _, stream := range schema.Streams {
			if info.Generation[stream] != 1 || info.Shards[stream] < 1 {
				t.Errorf("%s: generation %d with %d shards", stream, info.Generation[stream], info.Shards[stream])
			}
		}
	})
}
