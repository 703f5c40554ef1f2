package schematest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testInbox[Tx any](t *testing.T, open Opener[Tx]) {
	key := schema.InboxKey{Handler: "mailer", Source: "/millbridge/x", Tenant: "t", Key: "k"}
	newRun := func(owner string) schema.Run {
		return schema.Run{Key: key, Owner: owner, MessageID: "m1", BodyHash: [32]byte{1}, Lease: time.Hour}
	}
	claim := func(s *suite[Tx], run schema.Run, want schema.Claim) schema.ClaimResult {
		t.Helper()
		res, err := s.Store.Claim(s.ctx, run)
		s.must(err)
		if res.Claim != want {
			t.Fatalf("claim %v on %+v, want %v", res.Claim, res.Record, want)
		}
		return res
	}
	record := func(s *suite[Tx]) schema.InboxRecord {
		t.Helper()
		rec, ok, err := s.Store.LookupInbox(s.ctx, key)
		s.must(err)
		if !ok || rec.Key != key {
			t.Fatalf("record %+v, %v", rec, ok)
		}
		return rec
	}

	t.Run("a life under leases", func(t *testing.T) {
		s := start(t, open)
		if _, ok, err := s.Store.LookupInbox(s.ctx, key); ok || err != nil {
			t.Fatalf("a record before the first claim: %v, %v", ok, err)
		}
		one, two := newRun("one"), newRun("two")
		claim(s, one, schema.ClaimRun)
		if rec := record(s); rec.State != schema.InboxRunning || rec.LeaseOwner != "one" || rec.MessageID != "m1" || rec.BodyHash != one.BodyHash || rec.Attempts != 0 {
			t.Fatalf("record %+v", rec)
		}
		if res := claim(s, two, schema.ClaimBusy); res.Wait < 59*time.Minute || res.Wait > time.Hour {
			t.Fatalf("wait %v, want the lease's hour", res.Wait)
		}
		rec, err := s.Store.Fail(s.ctx, one, schema.Failure{Reason: "Err: a\nb", Attempted: true, Deliveries: 3, RetryIn: time.Hour})
		s.must(err)
		if rec != record(s) {
			t.Fatalf("failure recorded as %+v, found as %+v", rec, record(s))
		}
		if rec.Attempts != 1 || rec.Deliveries != 3 || rec.LastError != "Err: a b" || rec.LeaseOwner != "" || rec.State != schema.InboxRunning ||
			time.Until(rec.NextTry) < 59*time.Minute || time.Until(rec.NextTry) > 61*time.Minute {
			t.Fatalf("failure recorded as %+v", rec)
		}
		if res := claim(s, two, schema.ClaimBusy); res.Wait < 59*time.Minute || res.Wait > time.Hour {
			t.Fatalf("wait %v, want the hour until the next attempt", res.Wait)
		}
		s.age(2 * time.Hour)
		if res := claim(s, two, schema.ClaimRun); res.Record.Attempts != 1 || res.Record.Deliveries != 3 {
			t.Fatalf("claimed %+v, want the attempts kept", res.Record)
		}
		s.must(s.Store.Done(s.ctx, two))
		claim(s, newRun("three"), schema.ClaimDone)
		if rec := record(s); rec.State != schema.InboxDone || rec.LeaseOwner != "" {
			t.Fatalf("record %+v", rec)
		}
		for name, err := range map[string]error{
			"done":   s.Store.Done(s.ctx, two),
			"failed": func() error { _, err := s.Store.Fail(s.ctx, two, schema.Failure{Attempted: true}); return err }(),
		} {
			s.wants(err, schema.ErrLeaseLost)
			if schema.KindOf(err) != schema.NotMine {
				t.Errorf("%s: kind %v, want not_mine", name, schema.KindOf(err))
			}
		}
		if counts, err := s.Store.InboxCounts(s.ctx); err != nil || len(counts) != 1 || len(counts["mailer"]) != 1 || counts["mailer"][schema.InboxDone] != 1 {
			t.Errorf("counts %v, %v", counts, err)
		}
	})

	t.Run("a lease that has ended", func(t *testing.T) {
		s := start(t, open)
		one, two := newRun("one"), newRun("two")
		claim(s, one, schema.ClaimRun)
		s.age(30 * time.Minute)
		held, err := s.Store.Extend(s.ctx, []string{"one", "unknown"}, time.Hour)
		s.must(err)
		if !slices.Equal(held, []string{"one"}) {
			t.Fatalf("extended %v", held)
		}
		s.age(50 * time.Minute)
		claim(s, two, schema.ClaimBusy)
		s.age(20 * time.Minute)
		claim(s, two, schema.ClaimRun)
		s.wants(s.Store.Done(s.ctx, one), schema.ErrLeaseLost)
		_, err = s.Store.Fail(s.ctx, one, schema.Failure{Reason: "late", Attempted: true})
		s.wants(err, schema.ErrLeaseLost)
		if held, err := s.Store.Extend(s.ctx, []string{"one"}, time.Hour); len(held) != 0 || err != nil {
			t.Fatalf("extended %v, %v", held, err)
		}
		s.must(s.Store.Free(s.ctx, one)) // is not its to free
		claim(s, newRun("three"), schema.ClaimBusy)
		s.must(s.Store.Free(s.ctx, two))
		if rec := record(s); rec.Attempts != 0 || rec.LastError != "" {
			t.Errorf("record %+v, want no trace of a shutdown", rec)
		}
		claim(s, newRun("three"), schema.ClaimRun)
	})

	t.Run("in the handler's transaction", func(t *testing.T) {
		s := start(t, open)
		handle := func(owner string, want schema.Claim, end error) {
			t.Helper()
			err := s.Store.Unit(s.ctx, func(u schema.Unit) error {
				res, err := u.Claim(s.ctx, newRun(owner))
				s.must(err)
				if res.Claim != want {
					t.Fatalf("claim %v on %+v, want %v", res.Claim, res.Record, want)
				}
				if want != schema.ClaimRun {
					return nil
				}
				tx, ok := u.Tx().(Tx)
				if !ok {
					t.Fatalf("the unit's transaction is a %T", u.Tx())
				}
				s.must(s.Order(s.ctx, tx, 1))
				_, err = u.Append(s.ctx, []schema.Envelope{schema.NewEvent("mailed", nil)})
				s.must(err)
				return end
			})
			s.wants(err, end)
		}
		handle("one", schema.ClaimRun, errRollback)
		if _, ok, err := s.Store.LookupInbox(s.ctx, key); ok || err != nil {
			t.Fatalf("a record after the rollback: %v, %v", ok, err)
		}
		rec, err := s.Store.Fail(s.ctx, newRun("one"), schema.Failure{Reason: "r", Attempted: true, Deliveries: 1})
		s.must(err)
		if rec.Attempts != 1 || rec.State != schema.InboxRunning {
			t.Fatalf("failure recorded as %+v", rec)
		}
		handle("two", schema.ClaimRun, nil)
		handle("three", schema.ClaimDone, nil)
		orders, err := s.Orders(s.ctx)
		s.must(err)
		if rec := record(s); rec.State != schema.InboxDone || rec.Attempts != 1 || orders != 1 || len(s.waiting(schema.Events)) != 1 {
			t.Errorf("record %+v, %d orders, %d events; want done and one of each", rec, orders, len(s.waiting(schema.Events)))
		}
	})

	t.Run("only one of many runs", func(t *testing.T) {
		s := start(t, open)
		var mu sync.Mutex
		answers := make(map[schema.Claim]int)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				res, err := s.Store.Claim(s.ctx, newRun(string(rune('a'+i))))
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				mu.Lock()
				answers[res.Claim]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if answers[schema.ClaimRun] != 1 || answers[schema.ClaimBusy] != 19 {
			t.Errorf("answers %v, want one run", answers)
		}
	})

	t.Run("other messages with the key", func(t *testing.T) {
		s := start(t, open)
		other, reused := newRun("other"), newRun("reused")
		other.MessageID = "m2"
		reused.MessageID, reused.BodyHash = "m3", [32]byte{2}
		claim(s, newRun("one"), schema.ClaimRun)
		claim(s, other, schema.ClaimBusy)
		claim(s, reused, schema.ClaimReused)
		_, err := s.Store.Fail(s.ctx, newRun("one"), schema.Failure{Reason: "r", Attempted: true, Deliveries: 7})
		s.must(err)
		if res := claim(s, other, schema.ClaimRun); res.Record.Attempts != 1 || res.Record.Deliveries != 0 {
			t.Errorf("record %+v, want the attempts of the key and no deliveries of this message", res.Record)
		}
		_, err = s.Store.Fail(s.ctx, other, schema.Failure{Reason: "r", Dead: true, Cause: schema.CausePermanent})
		s.must(err)
		claim(s, other, schema.ClaimDead)
		claim(s, newRun("two"), schema.ClaimDone) // its content has a dead letter
		claim(s, reused, schema.ClaimReused)
		for _, handler := range []schema.InboxKey{
			{Handler: "crm", Source: key.Source, Tenant: "t", Key: "k"},
			{Handler: "mailer", Source: "y", Tenant: "t", Key: "k"},
			{Handler: "mailer", Source: key.Source, Tenant: "u", Key: "k"},
			{Handler: "mailer", Source: key.Source, Tenant: "t", Key: "K"},
		} {
			run := newRun("else")
			run.Key = handler
			claim(s, run, schema.ClaimRun)
		}
		recs, err := s.Store.InboxByMessage(s.ctx, "m1")
		s.must(err)
		if len(recs) != 4 || recs[0].Key.Handler != "crm" || recs[1].Key.Handler != "mailer" || recs[0].LeaseOwner != "else" {
			t.Errorf("records of m1: %+v", recs)
		}
	})

	t.Run("death and replay", func(t *testing.T) {
		s := start(t, open)
		turn := func(f func(tx Tx) (bool, error), end error) (ok bool) {
			t.Helper()
			s.wants(s.Store.InTx(s.ctx, func(tx Tx) (err error) {
				ok, err = f(tx)
				s.must(err)
				return end
			}), end)
			return ok
		}
		reset := func(from int, end error) bool {
			return turn(func(tx Tx) (bool, error) { return s.Store.ResetForReplay(s.ctx, tx, key, from) }, end)
		}
		drop := func(from int) bool {
			return turn(func(tx Tx) (bool, error) { return s.Store.Drop(s.ctx, tx, key, from) }, nil)
		}
		die := func(replay int) {
			t.Helper()
			run := newRun("r")
			run.Replay = replay
			claim(s, run, schema.ClaimRun)
			rec, err := s.Store.Fail(s.ctx, run, schema.Failure{Reason: "no", Attempted: true, Dead: true, Cause: schema.CauseExhausted, Deliveries: 4, RetryIn: time.Hour})
			s.must(err)
			if rec.State != schema.InboxDead || rec.Cause != schema.CauseExhausted || !rec.NextTry.IsZero() || rec.Attempts != 1 || rec.Replay != replay {
				t.Fatalf("died as %+v", rec)
			}
			claim(s, run, schema.ClaimDead)
		}
		die(0)
		if reset(1, nil) || drop(1) {
			t.Fatal("replayed a death that has not happened")
		}
		reset(0, errRollback)
		claim(s, newRun("x"), schema.ClaimDead)
		if !reset(0, nil) || reset(0, nil) || drop(0) {
			t.Fatal("want the first replay to win, and only that")
		}
		if rec := record(s); rec.State != schema.InboxRunning || rec.Replay != 1 || rec.Attempts != 0 || rec.Deliveries != 0 || rec.Cause != "" {
			t.Fatalf("record %+v after the reset", rec)
		}
		claim(s, newRun("late original"), schema.ClaimSuperseded)
		_, err := s.Store.Fail(s.ctx, newRun("late original"), schema.Failure{Attempted: true})
		s.wants(err, schema.ErrLeaseLost)
		die(1)
		if !drop(1) || drop(1) || reset(1, nil) {
			t.Fatal("want the first drop to win, and only that")
		}
		second := newRun("x")
		second.Replay = 1
		claim(s, second, schema.ClaimDone)
		if rec := record(s); rec.State != schema.InboxDropped || rec.Attempts != 1 || rec.LastError != "no" {
			t.Errorf("record %+v, want it dropped with its story", rec)
		}
	})

	t.Run("replay and drop without a record", func(t *testing.T) {
		s := start(t, open)
		s.must(s.Store.Unit(s.ctx, func(u schema.Unit) error {
			ok, err := u.ResetForReplay(s.ctx, key, 0)
			if !ok {
				t.Error("a foreign letter was not replayed")
			}
			return err
		}))
		run := newRun("one")
		run.Replay = 1
		claim(s, run, schema.ClaimRun)
		if rec := record(s); rec.MessageID != "m1" || rec.BodyHash != run.BodyHash || rec.Replay != 1 {
			t.Errorf("record %+v", rec)
		}
		gone := key
		gone.Key = "gone"
		s.must(s.Store.Unit(s.ctx, func(u schema.Unit) error {
			ok, err := u.Drop(s.ctx, gone, 2)
			if !ok {
				t.Error("a foreign letter was not dropped")
			}
			return err
		}))
		run = newRun("two")
		run.Key, run.Replay = gone, 2
		claim(s, run, schema.ClaimDone)
	})

	t.Run("a failure whose answer was lost", func(t *testing.T) {
		s := start(t, open)
		f := schema.Failure{Reason: "r", Attempted: true, Deliveries: 5, RetryIn: time.Hour}
		claim(s, newRun("one"), schema.ClaimRun)
		for range 2 {
			rec, err := s.Store.Fail(s.ctx, newRun("one"), f)
			s.must(err)
			if rec.Attempts != 1 {
				t.Fatalf("%d attempts, want 1", rec.Attempts)
			}
		}
	})
}
