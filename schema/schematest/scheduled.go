package schematest

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testScheduled[Tx any](t *testing.T, open Opener[Tx]) {
	in := func(d time.Duration) schema.Option { return schema.WithDueAt(time.Now().Add(d)) }

	t.Run("moves when due, in the order of times", func(t *testing.T) {
		s := start(t, open)
		if res := s.tend(); res != (schema.TendResult{}) {
			t.Fatalf("%+v with nothing to do", res)
		}
		last := schema.NewJob("crm", "c", []byte("x"), in(3*time.Hour), schema.WithOrderingKey("k"))
		first := schema.NewJob("crm", "a", nil, in(time.Hour), schema.WithOrderingKey("k"))
		second := schema.NewEvent("b", nil, in(2*time.Hour))
		now := schema.NewJob("crm", "now", nil)
		past := schema.NewJob("crm", "past", nil, in(-time.Hour))
		s.publish(last, first, now)
		s.publish(second, past)
		s.wantWaiting(schema.Jobs, now.ID, past.ID)
		res := s.tend()
		if res.Moved != 0 || res.NextDue < 50*time.Minute || res.NextDue > time.Hour {
			t.Fatalf("%+v, want nothing moved and the next within the hour", res)
		}
		s.age(150 * time.Minute)
		if res = s.tend(); res.Moved != 2 || res.NextDue <= 0 || res.NextDue > 31*time.Minute {
			t.Fatalf("%+v, want 2 moved and the next within half an hour", res)
		}
		s.age(time.Hour)
		if res = s.tend(); res.Moved != 1 || res.NextDue != 0 {
			t.Fatalf("%+v, want 1 moved and no next", res)
		}
		s.wantWaiting(schema.Jobs, now.ID, past.ID, first.ID, last.ID)
		s.wantWaiting(schema.Events, second.ID)
		if got, err := s.waiting(schema.Jobs)[3].Envelope(); err != nil || string(got.Payload) != "x" || got.OrderingKey != "k" {
			t.Errorf("moved as %+v, %v", got, err)
		}
	})

	t.Run("after a delay by the database's clock", func(t *testing.T) {
		s := start(t, open)
		long := schema.NewJob("crm", "long", nil, schema.WithDelay(2*time.Hour), schema.WithKey("k"))
		short := schema.NewEvent("short", nil, schema.WithDelay(time.Nanosecond))
		now := schema.NewJob("crm", "now", nil, schema.WithDelay(0))
		s.publish(long, short, now)
		s.wantWaiting(schema.Jobs, now.ID)
		list, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{Stream: schema.Jobs})
		s.must(err)
		if len(list) != 1 || (time.Until(list[0].DueAt)-2*time.Hour).Abs() > time.Minute {
			t.Fatalf("scheduled %+v", list)
		}
		if res := s.tend(); res.Moved > 1 || res.NextDue > 2*time.Hour || res.NextDue < time.Hour {
			t.Fatalf("%+v, want the short one moved and the long one next", res)
		}
		s.wantWaiting(schema.Events, short.ID)
		s.age(2*time.Hour + time.Second)
		s.tend()
		s.wantWaiting(schema.Jobs, now.ID, long.ID)
	})

	t.Run("a few at a time", func(t *testing.T) {
		s := start(t, open)
		var envs []schema.Envelope
		for range 25 {
			envs = append(envs, schema.NewJob("crm", "a", nil, in(time.Hour)))
		}
		s.publish(envs...)
		s.age(2 * time.Hour)
		for _, want := range []int{10, 10, 5} {
			res, err := s.Store.Tend(s.ctx, 10)
			s.must(err)
			if res.Moved != want || (res.NextDue > 0) != (want == 10) || res.NextDue > time.Second {
				t.Fatalf("%+v, want %d moved and the rest due at once", res, want)
			}
		}
		s.wantWaiting(schema.Jobs, idsOf(envs)...)
	})

	t.Run("cancel", func(t *testing.T) {
		s := start(t, open)
		e := schema.NewJob("crm", "a", []byte("x"), in(time.Hour), schema.WithKey("k"))
		s.publish(e)
		cancel := func(id string, end error) (err error) {
			got := s.Store.InTx(s.ctx, func(tx Tx) error {
				err = s.Store.Cancel(s.ctx, tx, id)
				return end
			})
			s.wants(got, end)
			return err
		}
		s.must(cancel(e.ID, errRollback))
		wantReceipts(t, s.publish(schema.NewJob("crm", "a", []byte("x"), schema.WithKey("k"))), schema.Receipt{ID: e.ID, Existing: true})
		s.must(cancel(e.ID, nil))
		s.wants(cancel(e.ID, nil), schema.ErrNotFound)
		s.wants(cancel("unknown", nil), schema.ErrNotFound)
		s.age(2 * time.Hour)
		if res := s.tend(); res.Moved != 0 {
			t.Fatalf("%+v, want nothing", res)
		}
		// Its key is free: otherwise publishing again would give back a message that nobody will ever send.
		again := schema.NewJob("crm", "a", []byte("y"), schema.WithKey("k"))
		wantReceipts(t, s.publish(again), schema.Receipt{ID: again.ID})
		s.wantWaiting(schema.Jobs, again.ID)
	})

	t.Run("cancel knows its key from another's", func(t *testing.T) {
		s := start(t, open)
		first := schema.NewJob("crm", "a", []byte("x"), in(60*24*time.Hour), schema.WithKey("k"))
		s.publish(first)
		s.age(40 * 24 * time.Hour)
		s.tend() // forgets the key
		second := schema.NewJob("crm", "a", []byte("x"), schema.WithKey("k"))
		wantReceipts(t, s.publish(second), schema.Receipt{ID: second.ID})
		s.must(s.Store.InTx(s.ctx, func(tx Tx) error { return s.Store.Cancel(s.ctx, tx, first.ID) }))
		wantReceipts(t, s.publish(schema.NewJob("crm", "a", []byte("x"), schema.WithKey("k"))), schema.Receipt{ID: second.ID, Existing: true})
	})

	t.Run("an id that two messages have", func(t *testing.T) {
		s := start(t, open)
		id := schema.WithID("same")
		s.publish(schema.NewJob("crm", "a", nil, id, in(time.Hour), schema.WithTenant("a")), schema.NewJob("crm", "a", nil, id, in(time.Hour), schema.WithTenant("b")))
		for _, do := range []func(tx Tx) error{
			func(tx Tx) error { return s.Store.Cancel(s.ctx, tx, "same") },
			func(tx Tx) error { return s.Store.Reschedule(s.ctx, tx, "same", time.Now()) },
		} {
			s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
				s.wants(do(tx), schema.ErrAmbiguous)
				return nil
			}))
		}
		if rows, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{}); err != nil || len(rows) != 2 || time.Until(rows[0].DueAt) < time.Minute {
			t.Errorf("%+v, %v", rows, err)
		}
	})

	t.Run("reschedule", func(t *testing.T) {
		s := start(t, open)
		e := schema.NewJob("crm", "a", nil, in(time.Hour))
		s.publish(e)
		reschedule := func(at time.Time) (err error) {
			s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
				err = s.Store.Reschedule(s.ctx, tx, e.ID, at)
				return nil
			}))
			return err
		}
		at := time.Now().Add(3 * time.Hour).Truncate(time.Microsecond)
		s.must(reschedule(at))
		rows, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{})
		s.must(err)
		if len(rows) != 1 || !rows[0].DueAt.Equal(at) {
			t.Fatalf("scheduled %+v, want one at %v", rows, at)
		}
		s.age(2 * time.Hour)
		if res := s.tend(); res.Moved != 0 {
			t.Fatalf("%+v, want nothing moved before its new time", res)
		}
		s.must(reschedule(time.Now().Add(-time.Second)))
		if res := s.tend(); res.Moved != 1 {
			t.Fatalf("%+v, want it moved", res)
		}
		s.wants(reschedule(at), schema.ErrNotFound)
		s.wants(s.Store.InTx(s.ctx, func(tx Tx) error { return s.Store.Cancel(s.ctx, tx, e.ID) }), schema.ErrNotFound)
		s.wantWaiting(schema.Jobs, e.ID)
	})
}
