package schematest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// An Inbox is what all inboxes have, those without a database too.
type Inbox interface {
	Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error)
	Done(ctx context.Context, run schema.Run) error
	Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error)
	Free(ctx context.Context, run schema.Run) error
	Extend(ctx context.Context, runs []schema.Run, lease time.Duration) (held []string, err error)
	LookupInbox(ctx context.Context, key schema.InboxKey) (schema.InboxRecord, bool, error)
}

// An InboxHarness is an empty inbox.
type InboxHarness struct {
	Inbox   Inbox
	Another Inbox // the same inbox, as another process has it
	// Age makes everything in the inbox d older.
	Age func(ctx context.Context, d time.Duration) error
}

// inboxKey is the key that the suite's runs are for.
var inboxKey = schema.InboxKey{Handler: "mailer", Source: "/millbridge/x", Tenant: "t", Key: "k"}

func newRun(owner string) schema.Run {
	return schema.Run{Key: inboxKey, Owner: owner, MessageID: "m1", BodyHash: [32]byte{1}, Lease: time.Hour}
}

// An inboxSuite is one test's inbox with helpers that end the test when they fail.
type inboxSuite struct {
	InboxHarness
	t   *testing.T
	ctx context.Context
}

func startInbox(t *testing.T, open func(t *testing.T) InboxHarness) *inboxSuite {
	t.Helper()
	t.Parallel()
	return &inboxSuite{open(t), t, t.Context()}
}

func (s *inboxSuite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *inboxSuite) wants(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Fatalf("error %v, want %v", err, want)
	}
}

func (s *inboxSuite) age(d time.Duration) {
	s.t.Helper()
	s.must(s.Age(s.ctx, d))
}

// claim asks for a run and ends the test unless this is the answer.
func (s *inboxSuite) claim(run schema.Run, want schema.Claim) schema.ClaimResult {
	s.t.Helper()
	res, err := s.Inbox.Claim(s.ctx, run)
	s.must(err)
	if res.Claim != want {
		s.t.Fatalf("claim %v on %+v, want %v", res.Claim, res.Record, want)
	}
	return res
}

func (s *inboxSuite) record() schema.InboxRecord {
	s.t.Helper()
	rec, ok, err := s.Inbox.LookupInbox(s.ctx, inboxKey)
	s.must(err)
	if !ok || rec.Key != inboxKey {
		s.t.Fatalf("record %+v, %v", rec, ok)
	}
	return rec
}

// RunInbox runs the part of the suite that is about runs under a lease.
func RunInbox(t *testing.T, open func(t *testing.T) InboxHarness) {
	t.Run("a life under leases", func(t *testing.T) {
		s := startInbox(t, open)
		if _, ok, err := s.Inbox.LookupInbox(s.ctx, inboxKey); ok || err != nil {
			t.Fatalf("a record before the first claim: %v, %v", ok, err)
		}
		one, two := newRun("one"), newRun("two")
		s.claim(one, schema.ClaimRun)
		if rec := s.record(); rec.State != schema.InboxRunning || rec.LeaseOwner != "one" || rec.MessageID != "m1" || rec.BodyHash != one.BodyHash || rec.Attempts != 0 {
			t.Fatalf("record %+v", rec)
		}
		if res := s.claim(two, schema.ClaimBusy); res.Wait < 59*time.Minute || res.Wait > time.Hour {
			t.Fatalf("wait %v, want the lease's hour", res.Wait)
		}
		rec, err := s.Inbox.Fail(s.ctx, one, schema.Failure{Reason: "Err: a\nb", Attempted: true, Deliveries: 3, RetryIn: time.Hour})
		s.must(err)
		if rec != s.record() {
			t.Fatalf("failure recorded as %+v, found as %+v", rec, s.record())
		}
		if rec.Attempts != 1 || rec.Deliveries != 3 || rec.LastError != "Err: a b" || rec.LeaseOwner != "" || rec.State != schema.InboxRunning ||
			time.Until(rec.NextTry) < 59*time.Minute || time.Until(rec.NextTry) > 61*time.Minute {
			t.Fatalf("failure recorded as %+v", rec)
		}
		if res := s.claim(two, schema.ClaimBusy); res.Wait < 59*time.Minute || res.Wait > time.Hour {
			t.Fatalf("wait %v, want the hour until the next attempt", res.Wait)
		}
		s.age(2 * time.Hour)
		if res := s.claim(two, schema.ClaimRun); res.Record.Attempts != 1 || res.Record.Deliveries != 3 {
			t.Fatalf("claimed %+v, want the attempts kept", res.Record)
		}
		s.must(s.Inbox.Done(s.ctx, two))
		s.claim(newRun("three"), schema.ClaimDone)
		if rec := s.record(); rec.State != schema.InboxDone || rec.LeaseOwner != "" {
			t.Fatalf("record %+v", rec)
		}
		for name, err := range map[string]error{
			"done":   s.Inbox.Done(s.ctx, two),
			"failed": func() error { _, err := s.Inbox.Fail(s.ctx, two, schema.Failure{Attempted: true}); return err }(),
		} {
			s.wants(err, schema.ErrLeaseLost)
			if schema.KindOf(err) != schema.NotMine {
				t.Errorf("%s: kind %v, want not_mine", name, schema.KindOf(err))
			}
		}
	})

	t.Run("a lease that has ended", func(t *testing.T) {
		s := startInbox(t, open)
		one, two := newRun("one"), newRun("two")
		s.claim(one, schema.ClaimRun)
		s.age(30 * time.Minute)
		held, err := s.Inbox.Extend(s.ctx, []schema.Run{one, newRun("unknown")}, time.Hour)
		s.must(err)
		if !slices.Equal(held, []string{"one"}) {
			t.Fatalf("extended %v", held)
		}
		s.age(50 * time.Minute)
		s.claim(two, schema.ClaimBusy)
		s.age(20 * time.Minute)
		s.claim(two, schema.ClaimRun)
		s.wants(s.Inbox.Done(s.ctx, one), schema.ErrLeaseLost)
		_, err = s.Inbox.Fail(s.ctx, one, schema.Failure{Reason: "late", Attempted: true})
		s.wants(err, schema.ErrLeaseLost)
		if held, err := s.Inbox.Extend(s.ctx, []schema.Run{one}, time.Hour); len(held) != 0 || err != nil {
			t.Fatalf("extended %v, %v", held, err)
		}
		s.must(s.Inbox.Free(s.ctx, one)) // is not its to free
		s.claim(newRun("three"), schema.ClaimBusy)
		s.must(s.Inbox.Free(s.ctx, two))
		if rec := s.record(); rec.Attempts != 0 || rec.LastError != "" {
			t.Errorf("record %+v, want no trace of a shutdown", rec)
		}
		s.claim(newRun("three"), schema.ClaimRun)
	})

	t.Run("only one of many runs", func(t *testing.T) {
		s := startInbox(t, open)
		var mu sync.Mutex
		answers := make(map[schema.Claim]int)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				res, err := s.Inbox.Claim(s.ctx, newRun(string(rune('a'+i))))
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
		s := startInbox(t, open)
		other, reused := newRun("other"), newRun("reused")
		other.MessageID = "m2"
		reused.MessageID, reused.BodyHash = "m3", [32]byte{2}
		s.claim(newRun("one"), schema.ClaimRun)
		s.claim(other, schema.ClaimBusy)
		s.claim(reused, schema.ClaimReused)
		_, err := s.Inbox.Fail(s.ctx, newRun("one"), schema.Failure{Reason: "r", Attempted: true, Deliveries: 7})
		s.must(err)
		if res := s.claim(other, schema.ClaimRun); res.Record.Attempts != 1 || res.Record.Deliveries != 0 {
			t.Errorf("record %+v, want the attempts of the key and no deliveries of this message", res.Record)
		}
		_, err = s.Inbox.Fail(s.ctx, other, schema.Failure{Reason: "r", Dead: true, Cause: schema.CausePermanent})
		s.must(err)
		s.claim(other, schema.ClaimDead)
		s.claim(newRun("two"), schema.ClaimDone) // its content has a dead letter
		s.claim(reused, schema.ClaimReused)
		for _, handler := range []schema.InboxKey{
			{Handler: "crm", Source: inboxKey.Source, Tenant: "t", Key: "k"},
			{Handler: "mailer", Source: "y", Tenant: "t", Key: "k"},
			{Handler: "mailer", Source: inboxKey.Source, Tenant: "u", Key: "k"},
			{Handler: "mailer", Source: inboxKey.Source, Tenant: "t", Key: "K"},
		} {
			run := newRun("else")
			run.Key = handler
			s.claim(run, schema.ClaimRun)
		}
	})

	t.Run("a failure whose answer was lost", func(t *testing.T) {
		s := startInbox(t, open)
		f := schema.Failure{Reason: "r", Attempted: true, Deliveries: 5, RetryIn: time.Hour}
		s.claim(newRun("one"), schema.ClaimRun)
		for range 2 {
			rec, err := s.Inbox.Fail(s.ctx, newRun("one"), f)
			s.must(err)
			if rec.Attempts != 1 {
				t.Fatalf("%d attempts, want 1", rec.Attempts)
			}
		}
	})

	// In a transaction of its own a run leaves no trace of its claim, so that the wait of the failure before is still there.
	t.Run("a failure of another delivery with the same number", func(t *testing.T) {
		s := startInbox(t, open)
		for attempt := range 3 {
			run := newRun(string(rune('a' + attempt)))
			for range 2 { // the first answer is lost
				rec, err := s.Inbox.Fail(s.ctx, run, schema.Failure{Reason: "r", Attempted: true, Attempts: attempt, Deliveries: 1, RetryIn: time.Hour})
				s.must(err)
				if rec.Attempts != attempt+1 || rec != s.record() {
					t.Fatalf("recorded as %+v, found as %+v, want %d attempts", rec, s.record(), attempt+1)
				}
			}
			s.age(2 * time.Hour)
		}
	})

	t.Run("a message that is no longer wanted", func(t *testing.T) {
		s := startInbox(t, open)
		one := newRun("one")
		s.claim(one, schema.ClaimRun)
		rec, err := s.Inbox.Fail(s.ctx, one, schema.Failure{Reason: "r", Cancelled: true, Deliveries: 1, RetryIn: time.Hour})
		s.must(err)
		if rec.State != schema.InboxDone || rec.Cause != schema.CauseCancelled || rec.LastError != "r" || rec.LeaseOwner != "" ||
			!rec.NextTry.IsZero() || rec.Attempts != 0 || rec != s.record() {
			t.Fatalf("recorded as %+v, found as %+v", rec, s.record())
		}
		s.claim(newRun("two"), schema.ClaimDone)
		_, err = s.Inbox.Fail(s.ctx, newRun("two"), schema.Failure{Reason: "r", Cancelled: true, Deliveries: 1})
		s.wants(err, schema.ErrLeaseLost)
	})

	t.Run("a replay of a dead key", func(t *testing.T) {
		s := startInbox(t, open)
		one, again := newRun("one"), newRun("again")
		again.Replay = 1
		s.claim(one, schema.ClaimRun)
		_, err := s.Inbox.Fail(s.ctx, one, schema.Failure{Reason: "no", Attempted: true, Dead: true, Cause: schema.CausePermanent, Deliveries: 2})
		s.must(err)
		s.claim(newRun("late"), schema.ClaimDead)
		if res := s.claim(again, schema.ClaimRun); res.Record.Attempts != 0 || res.Record.Deliveries != 0 || res.Record.Replay != 1 {
			t.Fatalf("claimed %+v, want a new life", res.Record)
		}
		s.claim(newRun("late"), schema.ClaimSuperseded)
		s.must(s.Inbox.Done(s.ctx, again))
		s.claim(again, schema.ClaimDone)
	})

	t.Run("a run that stood still while another took over", func(t *testing.T) {
		s := startInbox(t, open)
		paused, other := newRun("paused"), newRun("other")
		s.claim(paused, schema.ClaimRun)
		s.age(2 * time.Hour)
		res, err := s.Another.Claim(s.ctx, other)
		s.must(err)
		if res.Claim != schema.ClaimRun {
			t.Fatalf("claim %v in another process, want a run: the lease has ended", res.Claim)
		}
		// It wakes up, has not noticed, and wants to commit.
		s.wants(s.Inbox.Done(s.ctx, paused), schema.ErrLeaseLost)
		_, err = s.Inbox.Fail(s.ctx, paused, schema.Failure{Reason: "late", Attempted: true})
		s.wants(err, schema.ErrLeaseLost)
		if rec := s.record(); rec.State != schema.InboxRunning || rec.LeaseOwner != "other" || rec.Attempts != 0 {
			t.Fatalf("record %+v, want the other's run untouched", rec)
		}
		s.must(s.Another.Done(s.ctx, other))
		s.wants(s.Inbox.Done(s.ctx, paused), schema.ErrLeaseLost)
	})

	t.Run("many runs of two processes", func(t *testing.T) {
		s := startInbox(t, open)
		var mu sync.Mutex
		var done, ran int
		var wg sync.WaitGroup
		for i := range 10 {
			in := []Inbox{s.Inbox, s.Another}[i%2]
			wg.Go(func() {
				run := newRun(string(rune('a' + i)))
				run.Lease = time.Millisecond // ends while others still run
				res, err := in.Claim(s.ctx, run)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if res.Claim != schema.ClaimRun {
					return
				}
				err = in.Done(s.ctx, run)
				mu.Lock()
				defer mu.Unlock()
				ran++
				if err == nil {
					done++
				}
			})
		}
		wg.Wait()
		if ran == 0 || done != 1 {
			t.Errorf("%d of %d runs committed, want one", done, ran)
		}
	})
}
