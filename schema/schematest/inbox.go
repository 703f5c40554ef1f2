package schematest

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testInbox[Tx any](t *testing.T, open Opener[Tx]) {
	RunInbox(t, inboxOf(open))
	t.Run("groups", func(t *testing.T) {
		RunInbox(t, func(t *testing.T) InboxHarness {
			in := inboxOf(open)(t)
			in.Inbox, in.Another = grouped{in.Inbox.(groupStore)}, grouped{in.Another.(groupStore)}
			return in
		})
		t.Run("that cross", func(t *testing.T) {
			t.Parallel()
			testGroups(t, inboxOf(open)(t))
		})
	})
	key := inboxKey
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

	t.Run("records of a message", func(t *testing.T) {
		s := start(t, open)
		for _, handler := range []string{"mailer", "crm"} {
			run := newRun("else")
			run.Key.Handler = handler
			claim(s, run, schema.ClaimRun)
		}
		recs, err := s.Store.InboxByMessage(s.ctx, "m1")
		s.must(err)
		if len(recs) != 2 || recs[0].Key.Handler != "crm" || recs[1].Key.Handler != "mailer" || recs[0].LeaseOwner != "else" {
			t.Errorf("records of m1: %+v", recs)
		}
		s.must(s.Store.Done(s.ctx, newRun("else")))
		counts, err := s.Store.InboxCounts(s.ctx)
		s.must(err)
		if len(counts) != 2 || len(counts["mailer"]) != 1 || counts["mailer"][schema.InboxDone] != 1 || counts["crm"][schema.InboxRunning] != 1 {
			t.Errorf("counts %v", counts)
		}
	})

	t.Run("a run under a lease ends in a transaction", func(t *testing.T) {
		s := start(t, open)
		end := func(run schema.Run, report error, want error) {
			t.Helper()
			s.wants(s.Store.Unit(s.ctx, func(u schema.Unit) error {
				if err := u.Done(s.ctx, run); err != nil {
					return err
				}
				_, err := u.Append(s.ctx, []schema.Envelope{schema.NewEvent("mailed", nil)})
				s.must(err)
				return report
			}), want)
		}
		one, two := newRun("one"), newRun("two")
		claim(s, one, schema.ClaimRun)
		end(one, errRollback, errRollback)
		if rec := record(s); rec.State != schema.InboxRunning || rec.LeaseOwner != "one" || len(s.waiting(schema.Events)) != 0 {
			t.Fatalf("record %+v and %d events after the rollback", rec, len(s.waiting(schema.Events)))
		}
		s.age(2 * time.Hour)
		claim(s, two, schema.ClaimRun)
		end(one, nil, schema.ErrLeaseLost) // its lease is gone
		if rec := record(s); rec.LeaseOwner != "two" || len(s.waiting(schema.Events)) != 0 {
			t.Fatalf("record %+v and %d events after a run that had lost its lease", rec, len(s.waiting(schema.Events)))
		}
		end(two, nil, nil)
		if rec := record(s); rec.State != schema.InboxDone || len(s.waiting(schema.Events)) != 1 {
			t.Fatalf("record %+v and %d events, want done and its event", rec, len(s.waiting(schema.Events)))
		}
		end(two, nil, schema.ErrLeaseLost)
	})

	t.Run("a verdict in a transaction", func(t *testing.T) {
		s := start(t, open)
		dead := schema.Failure{Reason: "no", Attempted: true, Dead: true, Cause: schema.CausePermanent, Deliveries: 1}
		fail := func(end, want error) {
			t.Helper()
			s.wants(s.Store.Unit(s.ctx, func(u schema.Unit) error {
				rec, err := u.Fail(s.ctx, newRun("one"), dead)
				if err != nil {
					return err
				}
				if rec.State != schema.InboxDead || rec.Key != key {
					t.Errorf("failure recorded as %+v", rec)
				}
				_, err = u.Append(s.ctx, []schema.Envelope{schema.NewEvent("failed", nil)})
				s.must(err)
				return end
			}), want)
		}
		claim(s, newRun("one"), schema.ClaimRun)
		fail(errRollback, errRollback)
		if rec := record(s); rec.State != schema.InboxRunning || rec.Attempts != 0 || rec.LeaseOwner != "one" {
			t.Fatalf("record %+v after the rollback", rec)
		}
		fail(nil, nil)
		if rec := record(s); rec.State != schema.InboxDead || rec.Attempts != 1 || len(s.waiting(schema.Events)) != 1 {
			t.Fatalf("record %+v and %d events", rec, len(s.waiting(schema.Events)))
		}
		fail(nil, schema.ErrLeaseLost)
	})
}

// inboxOf is the inbox of a store.
func inboxOf[Tx any](open Opener[Tx]) func(t *testing.T) InboxHarness {
	return func(t *testing.T) InboxHarness {
		s := start2(t, open)
		return InboxHarness{Inbox: s.Store, Another: s.Another(), Age: s.Age}
	}
}
