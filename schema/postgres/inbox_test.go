package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

func run(owner string) schema.Run {
	return schema.Run{
		Key:   schema.InboxKey{Handler: "mailer", Source: "s", Key: "k"},
		Owner: owner, MessageID: "m", BodyHash: [32]byte{1}, Lease: time.Minute,
	}
}

// While a run is in its transaction, others of the key are told so at once, whatever they ask.
func TestClaimTx_never_waits(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	claimTx := func(tx pgx.Tx, owner string, want schema.Claim) {
		t.Helper()
		res, err := s.ClaimTx(ctx, tx, run(owner))
		if err != nil || res.Claim != want {
			t.Fatalf("claim %v, %v; want %v", res.Claim, err, want)
		}
	}
	claim := func(owner string, want schema.Claim) {
		t.Helper()
		res, err := s.Claim(ctx, run(owner))
		if err != nil || res.Claim != want {
			t.Fatalf("claim %v, %v; want %v", res.Claim, err, want)
		}
	}
	for round := range 3 { // without a record, with one of a failure, with one that another was about to write
		one, two := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
		claimTx(one, "one", schema.ClaimRun)
		claimTx(two, "two", schema.ClaimBusy)
		claim("three", schema.ClaimBusy)
		if round < 2 {
			if err := one.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			claimTx(two, "two", schema.ClaimRun)
			if err := two.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Fail(ctx, run("two"), schema.Failure{Reason: "r", Attempted: true, Deliveries: uint64(round + 1)}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		commit(t, one)
		claimTx(two, "two", schema.ClaimDone)
		claim("three", schema.ClaimDone)
		commit(t, two)
	}
}

// A failure that is noted while another run is in its transaction waits for it, and does not undo its work.
func TestFail_waits_for_a_transaction(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	if res, err := s.ClaimTx(t.Context(), tx, run("one")); err != nil || res.Claim != schema.ClaimRun {
		t.Fatalf("claim %v, %v", res.Claim, err)
	}
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { _, err = s.Fail(t.Context(), run("two"), schema.Failure{Reason: "late", Attempted: true}) })
	blocked(t, pool, 1)
	commit(t, tx)
	wg.Wait()
	if !errors.Is(err, schema.ErrLeaseLost) {
		t.Errorf("error %v, want the lease to be lost", err)
	}
	if rec, ok, err := s.LookupInbox(t.Context(), run("one").Key); err != nil || !ok || rec.State != schema.InboxDone {
		t.Errorf("record %+v, %v, %v; want it done", rec, ok, err)
	}
}

// A replay that is being made, or a drop, keeps runs away until it is committed.
func TestResetForReplay_keeps_runs_away(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	if _, err := s.Fail(t.Context(), run("one"), schema.Failure{Reason: "r", Attempted: true, Dead: true, Cause: schema.CausePermanent}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	if ok, err := s.ResetForReplay(t.Context(), tx, run("one").Key, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	again := run("two")
	again.Replay = 1
	if res, err := s.Claim(t.Context(), again); err != nil || res.Claim != schema.ClaimBusy {
		t.Errorf("claim %v, %v; want busy", res.Claim, err)
	}
	if res, err := s.Claim(t.Context(), run("late")); err != nil || res.Claim != schema.ClaimDead {
		t.Errorf("claim %v, %v; want dead", res.Claim, err)
	}
	// Of two operators at once, one wins.
	other := begin(t, pool, pgx.ReadCommitted)
	var ok bool
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { ok, err = s.Drop(t.Context(), other, run("one").Key, 0) })
	blocked(t, pool, 1)
	commit(t, tx)
	wg.Wait()
	if ok || err != nil {
		t.Errorf("dropped %v, %v; want the replay to have won", ok, err)
	}
	commit(t, other)
	if res, err := s.Claim(t.Context(), again); err != nil || res.Claim != schema.ClaimRun {
		t.Errorf("claim %v, %v; want it to run", res.Claim, err)
	}
}

// Handlers may use a stricter level, at the price of trying again.
func TestClaimTx_at_repeatable_read(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	tx := begin(t, pool, pgx.RepeatableRead)
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM millbridge.meta`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), run("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ClaimTx(t.Context(), tx, run("two")); !errors.Is(err, schema.ErrRetryTransaction) {
		t.Errorf("error %v, want one that asks for another try", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, pool, pgx.RepeatableRead)
	if res, err := s.ClaimTx(t.Context(), tx, run("two")); err != nil || res.Claim != schema.ClaimBusy {
		t.Errorf("claim %v, %v; want busy", res.Claim, err)
	}
}
