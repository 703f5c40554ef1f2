package schematest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testSagas[Tx any](t *testing.T, open Opener[Tx]) {
	at := func(id string, version int, status schema.SagaStatus) (schema.SagaRecord, schema.SagaEvent) {
		state := []byte(fmt.Sprintf(`{"n": %d, "text": "a\u0000 ü"}`, version))
		return schema.SagaRecord{Saga: "loan", ID: id, Tenant: "t", Status: status, Step: "ask", State: state, Version: version},
			schema.SagaEvent{N: 99, Step: "ask", Kind: "forward", Rationale: "because\nso", Intents: []byte(`[ 1 ]`), State: state}
	}
	save := func(s *suite[Tx], id string, version int, status schema.SagaStatus) error {
		return s.Store.Unit(s.ctx, func(u schema.Unit) error {
			rec, ev := at(id, version, status)
			return u.SaveSaga(s.ctx, rec, ev)
		})
	}
	load := func(s *suite[Tx], id string) (rec schema.SagaRecord, found bool) {
		t.Helper()
		s.must(s.Store.Unit(s.ctx, func(u schema.Unit) (err error) {
			rec, found, err = u.LoadSaga(s.ctx, "loan", id)
			return err
		}))
		return rec, found
	}

	t.Run("record, events and intents commit together", func(t *testing.T) {
		s := start(t, open)
		step := func(version int, end error) {
			t.Helper()
			s.wants(s.Store.Unit(s.ctx, func(u schema.Unit) error {
				old, found, err := u.LoadSaga(s.ctx, "loan", "a")
				s.must(err)
				if found != (version > 1) || old.Version != version-1 {
					t.Errorf("loaded %+v, %v before version %d", old, found, version)
				}
				rec, ev := at("a", version, schema.SagaRunning)
				s.must(u.SaveSaga(s.ctx, rec, ev))
				_, err = u.Append(s.ctx, []schema.Envelope{schema.NewEvent("asked", nil)})
				s.must(err)
				return end
			}), end)
		}
		step(1, errRollback)
		if rec, found := load(s, "a"); found || len(s.waiting(schema.Events)) != 0 {
			t.Fatalf("%+v after the rollback", rec)
		}
		step(1, nil)
		step(2, nil)
		step(3, errRollback)
		rec, found := load(s, "a")
		want, ev := at("a", 2, schema.SagaRunning)
		if !found || rec.Version != 2 || rec.Step != "ask" || rec.Tenant != "t" || rec.Status != schema.SagaRunning || string(rec.State) != string(want.State) {
			t.Fatalf("%+v, %v", rec, found)
		}
		if rec.CreatedAt.IsZero() || rec.UpdatedAt.Before(rec.CreatedAt) || time.Since(rec.UpdatedAt).Abs() > time.Minute {
			t.Errorf("created %v, updated %v", rec.CreatedAt, rec.UpdatedAt)
		}
		history, err := s.Store.SagaHistory(s.ctx, "loan", "a")
		s.must(err)
		if len(history) != 2 || history[0].N != 1 || history[1].N != 2 || history[1].Rationale != ev.Rationale || history[1].Kind != ev.Kind ||
			string(history[1].Intents) != string(ev.Intents) || string(history[1].State) != string(ev.State) || history[1].At.IsZero() {
			t.Errorf("history %+v", history)
		}
		if n := len(s.waiting(schema.Events)); n != 2 {
			t.Errorf("%d events, want those of the two steps", n)
		}
	})

	t.Run("what is tried in vain leaves nothing, and the rest commits", func(t *testing.T) {
		s := start(t, open)
		if rec, found, err := s.Store.Saga(s.ctx, "loan", "a"); found || err != nil {
			t.Errorf("%+v, %v before there is one", rec, err)
		}
		s.must(s.Store.Unit(s.ctx, func(u schema.Unit) error {
			rec, ev := at("a", 1, schema.SagaRunning)
			s.must(u.Try(s.ctx, func() error { return u.SaveSaga(s.ctx, rec, ev) }))
			s.wants(u.Try(s.ctx, func() error {
				rec, ev := at("a", 2, schema.SagaDone)
				s.must(u.SaveSaga(s.ctx, rec, ev))
				_, err := u.Append(s.ctx, []schema.Envelope{schema.NewEvent("done", nil)})
				s.must(err)
				return errRollback
			}), errRollback)
			s.wants(u.Try(s.ctx, func() error { return u.SaveSaga(s.ctx, rec, ev) }), schema.ErrRetryTransaction)
			_, err := u.Append(s.ctx, []schema.Envelope{schema.NewEvent("begun", nil)})
			return err
		}))
		rec, found, err := s.Store.Saga(s.ctx, "loan", "a")
		if s.must(err); !found || rec.Version != 1 || rec.Status != schema.SagaRunning {
			t.Errorf("%+v, %v", rec, found)
		}
		if rows := s.waiting(schema.Events); len(rows) != 1 || rows[0].Subject != "events.internal.begun" {
			t.Errorf("waiting are %+v", rows)
		}
	})

	t.Run("a version is written once", func(t *testing.T) {
		s := start(t, open)
		s.must(save(s, "a", 1, schema.SagaRunning))
		for _, version := range []int{1, 3} {
			err := save(s, "a", version, schema.SagaRunning)
			s.wants(err, schema.ErrRetryTransaction)
			if schema.KindOf(err) != schema.Temporary {
				t.Errorf("version %d: kind %v", version, schema.KindOf(err))
			}
		}
		s.wants(save(s, "none", 2, schema.SagaRunning), schema.ErrRetryTransaction)
	})

	t.Run("two processes at one saga", func(t *testing.T) {
		s := start(t, open)
		const each = 10
		stores := []Store[Tx]{s.Store, s.Another()}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := 0; n < each; {
					err := stores[i%2].Unit(s.ctx, func(u schema.Unit) error {
						old, _, err := u.LoadSaga(s.ctx, "loan", "a")
						if err != nil {
							return err
						}
						rec, ev := at("a", old.Version+1, schema.SagaRunning)
						return u.SaveSaga(s.ctx, rec, ev)
					})
					switch {
					case err == nil:
						n++
					case schema.KindOf(err) != schema.Temporary:
						t.Errorf("step: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		history, err := s.Store.SagaHistory(s.ctx, "loan", "a")
		s.must(err)
		if rec, _ := load(s, "a"); rec.Version != 4*each || len(history) != 4*each {
			t.Errorf("version %d with %d events, want %d of each", rec.Version, len(history), 4*each)
		}
	})

	t.Run("lists", func(t *testing.T) {
		s := start(t, open)
		for i, status := range []schema.SagaStatus{schema.SagaRunning, schema.SagaStuck, schema.SagaDone, schema.SagaStuck} {
			if i == 3 {
				s.age(time.Hour)
			}
			s.must(save(s, fmt.Sprint(i), 1, status))
		}
		for want, f := range map[string]schema.SagaFilter{
			"0 1 2 3": {}, "1 3": {Status: schema.SagaStuck}, "1": {Status: schema.SagaStuck, Idle: 30 * time.Minute}, "0 1": {Limit: 2},
			"2 3": {AfterSaga: "loan", AfterID: "1", Saga: "loan", Tenant: "t"}, "": {Saga: "other"},
		} {
			list, err := s.Store.Sagas(s.ctx, f)
			s.must(err)
			var ids []string
			for _, rec := range list {
				ids = append(ids, rec.ID)
			}
			if got := strings.Join(ids, " "); got != want {
				t.Errorf("%+v lists %q, want %q", f, got, want)
			}
		}
	})

	t.Run("what cannot be kept is refused", func(t *testing.T) {
		s := start(t, open)
		for field, change := range map[string]func(*schema.SagaRecord, *schema.SagaEvent){
			"saga":            func(r *schema.SagaRecord, _ *schema.SagaEvent) { r.Saga = "Loan" },
			"id":              func(r *schema.SagaRecord, _ *schema.SagaEvent) { r.ID = strings.Repeat("i", schema.MaxKeyChars+1) },
			"status":          func(r *schema.SagaRecord, _ *schema.SagaEvent) { r.Status = "odd" },
			"version":         func(r *schema.SagaRecord, _ *schema.SagaEvent) { r.Version = 0 },
			"state":           func(r *schema.SagaRecord, _ *schema.SagaEvent) { r.State = []byte("{") },
			"event.rationale": func(_ *schema.SagaRecord, ev *schema.SagaEvent) { ev.Rationale = "\xff" },
		} {
			rec, ev := at("a", 1, schema.SagaRunning)
			change(&rec, &ev)
			err := s.Store.Unit(s.ctx, func(u schema.Unit) error { return u.SaveSaga(s.ctx, rec, ev) })
			s.wants(err, schema.ErrInvalid)
			if !strings.Contains(err.Error(), field+": ") {
				t.Errorf("%s: %v", field, err)
			}
		}
	})

	t.Run("those that have ended are forgotten", func(t *testing.T) {
		s := start(t, open)
		for i := range 15 {
			s.must(save(s, fmt.Sprintf("%02d", i), 1, schema.SagaDone))
		}
		s.must(save(s, "undone", 1, schema.SagaCompensated))
		s.must(save(s, "stuck", 1, schema.SagaStuck))
		s.tend()
		left := func() int {
			list, err := s.Store.Sagas(s.ctx, schema.SagaFilter{})
			s.must(err)
			return len(list)
		}
		if n := left(); n != 17 {
			t.Fatalf("%d sagas, want all kept for their time", n)
		}
		s.age(month)
		for i, want := range []int{7, 1} {
			res, err := s.Store.Tend(s.ctx, 10)
			s.must(err)
			if n := left(); n != want || res.More != (i == 0) {
				t.Fatalf("%d sagas after step %d, which says %v; want %d", n, i, res.More, want)
			}
		}
		for id, want := range map[string]int{"00": 0, "undone": 0, "stuck": 1} {
			history, err := s.Store.SagaHistory(s.ctx, "loan", id)
			s.must(err)
			if len(history) != want {
				t.Errorf("%s has %d events, want %d", id, len(history), want)
			}
		}
	})
}
