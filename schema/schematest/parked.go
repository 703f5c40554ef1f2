package schematest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func testParked[Tx any](t *testing.T, open Opener[Tx]) {
	ordered := func(name, key string) schema.Envelope {
		return schema.NewJob("crm", name, []byte(name), schema.WithOrderingKey(key), schema.WithID(name))
	}
	find := func(s *suite[Tx], id string) schema.Row {
		t.Helper()
		for _, r := range s.waiting(schema.Jobs) {
			if r.ID == schema.RowID(id) {
				return r
			}
		}
		t.Fatalf("message %s does not wait", id)
		return schema.Row{}
	}
	park := func(s *suite[Tx], id string) {
		t.Helper()
		r := find(s, id)
		s.acquire(s.shardOf(r), "me")
		s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: s.shardOf(r), Owner: "me", Name: r.Name(), Reason: "too large\nfor the server"}))
	}
	parked := func(s *suite[Tx], want ...string) []schema.ParkedRow {
		t.Helper()
		rows, err := s.Store.ListParked(s.ctx, schema.RowFilter{})
		s.must(err)
		var got []string
		for _, r := range rows {
			got = append(got, s.ids([]schema.Row{r.Row})...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("parked %v, want %v", got, want)
		}
		return rows
	}

	name := func(s *suite[Tx], id string) schema.RowName {
		t.Helper()
		rows, err := s.Store.ListParked(s.ctx, schema.RowFilter{ID: id})
		s.must(err)
		if len(rows) != 1 {
			t.Fatalf("%d rows of message %s are parked", len(rows), id)
		}
		return rows[0].Name()
	}

	t.Run("keeps the row and holds back its key", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"), ordered("b1", "b"), ordered("a2", "a"), ordered("b2", "b"), ordered("a3", "a"))
		before := find(s, "a2")
		park(s, "a2")
		got := parked(s, "a2")[0]
		if got.Reason != "too large for the server" || got.Behind || got.ParkedAt.IsZero() {
			t.Errorf("parked as %+v", got)
		}
		if !got.CreatedAt.Equal(before.CreatedAt) || got.Seq != before.Seq || string(got.Payload) != "a2" || string(got.Header) != string(before.Header) ||
			got.Subject != before.Subject || got.Slot != before.Slot || got.OrderLock != before.OrderLock || got.Stream != before.Stream {
			t.Errorf("parked\n%+v\nwas\n%+v", got.Row, before)
		}
		s.wantWaiting(schema.Jobs, "a1", "b1", "b2") // a1 came before
		s.publish(ordered("a4", "a"))
		if res := s.tend(); res.Parked != 2 {
			t.Fatalf("%+v, want 2 parked behind", res)
		}
		if rows := parked(s, "a2", "a3", "a4"); !rows[1].Behind || !rows[2].Behind || rows[1].Reason == "" {
			t.Errorf("rows behind: %+v", rows)
		}
		s.wantWaiting(schema.Jobs, "a1", "b1", "b2")
		if res := s.tend(); res.Parked != 0 {
			t.Fatalf("%+v, want nothing parked again", res)
		}

		// Released, all of the key come back in order: those that are parked, and those that came since.
		s.publish(ordered("a5", "a"))
		n, err := s.Store.ReleaseParked(s.ctx, name(s, "a2"))
		s.must(err)
		if n != 4 {
			t.Errorf("%d rows released, want 4", n)
		}
		parked(s)
		s.wantWaiting(schema.Jobs, "a1", "b1", "b2", "a2", "a3", "a4", "a5")
	})

	t.Run("rows before the parked one of their key stay", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("c1", "c"), ordered("a1", "a"), ordered("c2", "c"), ordered("a2", "a"), ordered("a3", "a"))
		park(s, "c1")
		park(s, "a2")
		if res := s.tend(); res.Parked != 2 {
			t.Fatalf("%+v, want 2 parked", res)
		}
		parked(s, "c1", "c2", "a2", "a3")
		s.wantWaiting(schema.Jobs, "a1")
	})

	t.Run("release by an id behind", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"), ordered("a2", "a"))
		park(s, "a1")
		s.tend()
		n, err := s.Store.ReleaseParked(s.ctx, name(s, "a2"))
		s.must(err)
		if n != 2 {
			t.Errorf("%d rows released, want the whole key", n)
		}
		s.wantWaiting(schema.Jobs, "a1", "a2")
	})

	t.Run("a row without an ordering key", func(t *testing.T) {
		s := start(t, open)
		for _, id := range []string{"one", "two", "three"} {
			s.publish(schema.NewJob("crm", "x", nil, schema.WithID(id)))
		}
		park(s, "one")
		park(s, "two")
		if res := s.tend(); res.Parked != 0 {
			t.Fatalf("%+v: rows without an order wait behind none", res)
		}
		n, err := s.Store.ReleaseParked(s.ctx, name(s, "one"))
		s.must(err)
		if n != 1 {
			t.Errorf("%d rows released, want 1", n)
		}
		parked(s, "two")
		s.wantWaiting(schema.Jobs, "three", "one")
	})

	t.Run("two messages with one id", func(t *testing.T) {
		s := start(t, open)
		for i, tenant := range []string{"a", "b", "c"} {
			s.publish(schema.NewJob("crm", "x", []byte(tenant), schema.WithID("same"), schema.WithTenant(tenant)))
			row := s.waiting(schema.Jobs)[0]
			s.acquire(s.shardOf(row), "me")
			s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: s.shardOf(row), Owner: "me", Name: row.Name(), Reason: fmt.Sprint(i)}))
		}
		rows := parked(s, "same", "same", "same")
		s.must(s.Store.DropParked(s.ctx, rows[0].Name()))
		n, err := s.Store.ReleaseParked(s.ctx, rows[2].Name())
		s.must(err)
		if left := parked(s, "same"); n != 1 || string(left[0].Payload) != "b" {
			t.Errorf("%d rows released, %q is left", n, left[0].Payload)
		}
		if back := s.waiting(schema.Jobs); len(back) != 1 || string(back[0].Payload) != "c" {
			t.Errorf("put back: %+v", back)
		}
	})

	t.Run("dropping lets the others go on", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"), ordered("a2", "a"), ordered("a3", "a"))
		r := s.Reader(s.shardOf(find(s, "a2")), s.shards(schema.Jobs))
		_, err := r.Read(s.ctx, schema.ReadParams{})
		s.must(err)
		park(s, "a1")
		s.wantPeek(false, r.Look(schema.ReadParams{})) // it would wake a forwarder for nothing, again and again
		if res, err := s.Store.Tend(s.ctx, 1); err != nil || res.Parked != 1 {
			t.Fatalf("%+v, %v; want 1 parked", res, err)
		}
		a1 := name(s, "a1")
		s.must(s.Store.DropParked(s.ctx, a1))
		parked(s)
		s.wantWaiting(schema.Jobs, "a2", "a3")
		s.wants(s.Store.DropParked(s.ctx, a1), schema.ErrNotFound)
		_, err = s.Store.ReleaseParked(s.ctx, a1)
		s.wants(err, schema.ErrNotFound)
	})

	t.Run("dropping a row behind keeps the others", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"), ordered("a2", "a"), ordered("a3", "a"))
		park(s, "a1")
		s.tend()
		s.must(s.Store.DropParked(s.ctx, name(s, "a2")))
		parked(s, "a1", "a3")
		s.wantWaiting(schema.Jobs)
	})

	t.Run("a reader that has gone on sees what comes back", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"), ordered("a2", "a"))
		row := find(s, "a1")
		r := s.Reader(s.shardOf(row), s.shards(schema.Jobs))
		read := func(want ...string) {
			t.Helper()
			for range 5 { // gives a floor the chance to rise
				rows, err := r.Read(s.ctx, schema.ReadParams{MaxRows: 10, MaxBytes: 1 << 20})
				s.must(err)
				if got := s.ids(rows); !slices.Equal(got, want) {
					t.Fatalf("read %v, want %v", got, want)
				}
				s.pause()
			}
		}
		read("a1", "a2")
		park(s, "a1")
		read()
		s.must(s.Store.DropParked(s.ctx, name(s, "a1")))
		read("a2")
		park(s, "a2")
		read()
		_, err := s.Store.ReleaseParked(s.ctx, name(s, "a2"))
		s.must(err)
		read("a2")
	})

	t.Run("refusals", func(t *testing.T) {
		s := start(t, open)
		s.publish(ordered("a1", "a"))
		row := find(s, "a1")
		shard := s.shardOf(row)
		s.acquire(shard, "one")
		s.must(s.Store.Release(s.ctx, "one"))
		s.acquire(shard, "two")
		p := schema.ParkParams{ShardRef: shard, Owner: "one", Name: row.Name(), Reason: "r"}
		err := s.Store.Park(s.ctx, p)
		s.wants(err, schema.ErrLeaseLost)
		if schema.KindOf(err) != schema.NotMine {
			t.Errorf("kind %v, want not_mine", schema.KindOf(err))
		}
		p.Owner = "two"
		p.Name.Seq++
		s.wants(s.Store.Park(s.ctx, p), schema.ErrNotFound)
		s.wantWaiting(schema.Jobs, "a1")
		parked(s)
	})
}
