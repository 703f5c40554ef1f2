package schematest

import (
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// testAccounts follows messages of the stream of jobs until nothing but a number is left of them.
func testAccounts[Tx any](t *testing.T, open Opener[Tx]) {
	run := func(id, key string, sequence uint64) schema.Run {
		return schema.Run{
			Key: schema.InboxKey{Handler: "h", Key: key}, Owner: id, MessageID: id, BodyHash: [32]byte{1}, Lease: time.Minute, Sequence: sequence,
		}
	}
	// settled counts up to a cut, without what is in the stream too.
	settled := func(s *suite[Tx], until uint64, inStream ...schema.Sent) int64 {
		a, err := s.Store.Accounts(s.ctx, schema.AccountsParams{Until: until, InStream: inStream})
		s.must(err)
		return a.Settled["h"] - a.Overlap
	}
	want := func(s *suite[Tx], what string, got, want int64) {
		if got != want {
			s.t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	claim := func(s *suite[Tx], r schema.Run, answer schema.Claim) {
		res, err := s.Store.Claim(s.ctx, r)
		s.must(err)
		if res.Claim != answer {
			s.t.Fatalf("claim of %s: %v, want %v", r.MessageID, res.Claim, answer)
		}
	}

	t.Run("settled jobs count up to the cut", func(t *testing.T) {
		s := start(t, open)
		a, b, c, event := run("a", "a", 5), run("b", "b", 9), run("c", "c", 7), run("e", "e", 0)
		for _, r := range []schema.Run{a, b, c, event} {
			claim(s, r, schema.ClaimRun)
		}
		want(s, "running", settled(s, 100), 0)
		for _, r := range []schema.Run{a, b, event} {
			s.must(s.Store.Done(s.ctx, r))
		}
		_, err := s.Store.Fail(s.ctx, c, schema.Failure{Reason: "r", Dead: true, Cause: schema.CausePermanent})
		s.must(err)
		want(s, "all", settled(s, 9), 3)
		want(s, "up to 8", settled(s, 8), 2)
		want(s, "below", settled(s, 4), 0)
		want(s, "one is in the stream too", settled(s, 9, schema.Sent{Sequence: 5, MessageID: "a"}, schema.Sent{Sequence: 6, MessageID: "x"}), 2)
		want(s, "another message has its number", settled(s, 9, schema.Sent{Sequence: 5, MessageID: "x"}), 3)
		rec, _, err := s.Store.LookupInbox(s.ctx, b.Key)
		s.must(err)
		want(s, "the record's sequence", int64(rec.Sequence), 9)
	})

	t.Run("a replay keeps the life that ended", func(t *testing.T) {
		s := start(t, open)
		first := run("a", "a", 5)
		claim(s, first, schema.ClaimRun)
		_, err := s.Store.Fail(s.ctx, first, schema.Failure{Reason: "r", Dead: true, Cause: schema.CausePermanent})
		s.must(err)
		s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
			won, err := s.Store.ResetForReplay(s.ctx, tx, first.Key, 0)
			if err == nil && !won {
				s.t.Error("the replay was refused")
			}
			return err
		}))
		want(s, "the first life", settled(s, 100), 1)
		want(s, "not acked yet", settled(s, 100, schema.Sent{Sequence: 5, MessageID: "a"}), 0)
		second := run("a", "a", 20)
		second.Replay, second.Owner = 1, "second"
		claim(s, second, schema.ClaimRun)
		want(s, "the second runs", settled(s, 100), 1)
		s.must(s.Store.Done(s.ctx, second))
		want(s, "both lives", settled(s, 100), 2)
		claim(s, run("a", "a", 5), schema.ClaimSuperseded)
		s.must(s.Store.Settled(s.ctx, first)) // its trace is there
		want(s, "handed out again", settled(s, 100), 2)
	})

	t.Run("a second message of a key leaves a trace", func(t *testing.T) {
		s := start(t, open)
		claim(s, run("a", "k", 5), schema.ClaimRun)
		s.must(s.Store.Done(s.ctx, run("a", "k", 5)))
		other := run("b", "k", 9)
		claim(s, other, schema.ClaimDone)
		s.must(s.Store.Settled(s.ctx, other))
		s.must(s.Store.Settled(s.ctx, other))
		want(s, "both", settled(s, 100), 2)
	})

	t.Run("what is forgotten is counted", func(t *testing.T) {
		s := start(t, open)
		for i := range 25 {
			id := string(rune('a' + i))
			claim(s, run(id, id, uint64(i+1)), schema.ClaimRun)
			if i > 0 {
				s.must(s.Store.Done(s.ctx, run(id, id, uint64(i+1))))
			}
		}
		s.must(s.Store.Settled(s.ctx, run("other", "other", 50)))
		s.age(month)
		for range 5 {
			_, err := s.Store.Tend(s.ctx, 10)
			s.must(err)
		}
		counts, err := s.Store.InboxCounts(s.ctx)
		s.must(err)
		want(s, "rows left", counts["h"][schema.InboxDone], 0)
		want(s, "settled", settled(s, 100), 25)
		a, err := s.Store.Accounts(s.ctx, schema.AccountsParams{Until: 100})
		s.must(err)
		want(s, "only counted", a.Pruned["h"], 25)
	})

	t.Run("differences are accepted", func(t *testing.T) {
		s := start(t, open)
		s.must(s.Store.Accept(s.ctx, schema.Jobs, 3))
		s.must(s.Store.Accept(s.ctx, schema.Jobs, -1))
		a, err := s.Store.Accounts(s.ctx, schema.AccountsParams{})
		s.must(err)
		want(s, "accepted", a.Accepted[schema.Jobs], 2)
		if time.Since(a.Created) > time.Hour || a.Created.IsZero() {
			t.Errorf("created at %v", a.Created)
		}
	})

	t.Run("traces of messages", func(t *testing.T) {
		s := start(t, open)
		ids := []string{schema.NewID(), schema.NewID(), schema.NewID(), "handled", "noted", schema.NewID(), "nowhere"}
		s.publish(
			schema.NewJob("crm", "a", nil, schema.WithID(ids[0]), schema.WithKey("k0")),
			schema.NewJob("crm", "a", nil, schema.WithID(ids[1]), schema.WithDelay(time.Hour)),
			schema.NewJob("crm", "parked", nil, schema.WithID(ids[2])),
			schema.NewJob("crm", "dropped", nil, schema.WithID(ids[5])))
		var dropped schema.RowName
		for _, r := range s.waiting(schema.Jobs) {
			if r.ID == schema.RowID(ids[5]) {
				dropped = r.Name()
			}
			if r.ID == schema.RowID(ids[2]) || r.ID == schema.RowID(ids[5]) {
				s.acquire(s.shardOf(r), "me")
				s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: s.shardOf(r), Owner: "me", Name: r.Name(), Reason: "r"}))
			}
		}
		s.must(s.Store.DropParked(s.ctx, dropped))
		claim(s, run("handled", "handled", 1), schema.ClaimRun)
		s.must(s.Store.Settled(s.ctx, run("noted", "noted", 2)))
		gone, err := s.Store.Unplaced(s.ctx, ids)
		s.must(err)
		if !slices.Equal(gone, []string{"nowhere"}) {
			t.Errorf("without a trace: %v", gone)
		}
		a, err := s.Store.Accounts(s.ctx, schema.AccountsParams{Until: 100})
		s.must(err)
		want(s, "dropped", a.Dropped[schema.Jobs], 1)
		keys, err := s.Store.PublishedKeys(s.ctx, nil, 10)
		s.must(err)
		if len(keys) != 1 || keys[0].MessageID != ids[0] || len(keys[0].Hash) != 32 || keys[0].At.IsZero() {
			t.Errorf("keys: %+v", keys)
		}
		if more, err := s.Store.PublishedKeys(s.ctx, keys[0].Hash, 10); err != nil || len(more) != 0 {
			t.Errorf("keys behind the last: %+v %v", more, err)
		}
		known, err := s.Store.KnownKeys(s.ctx, [][32]byte{run("", "handled", 0).Key.Hash(), run("", "noted", 0).Key.Hash()})
		s.must(err)
		if len(known) != 1 || !known[run("", "handled", 0).Key.Hash()] {
			t.Errorf("known keys: %v", known)
		}
		_, err = s.Store.Fail(s.ctx, run("handled", "handled", 1), schema.Failure{Reason: "r", Dead: true, Cause: schema.CausePermanent})
		s.must(err)
		dead, err := s.Store.DeadRecords(s.ctx, nil, 10)
		s.must(err)
		if len(dead) != 1 || dead[0].MessageID != "handled" || dead[0].Handler != "h" || dead[0].Sequence != 1 || dead[0].Hash != run("", "handled", 0).Key.Hash() {
			t.Errorf("dead: %+v", dead)
		}
		if more, err := s.Store.DeadRecords(s.ctx, dead[0].Hash[:], 10); err != nil || len(more) != 0 {
			t.Errorf("dead behind the last: %+v %v", more, err)
		}
	})
}
