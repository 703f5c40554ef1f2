package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// differing returns the names of the checks that do not hold.
func differing(t *testing.T, w *world) (ops.Tally, []string) {
	t.Helper()
	tally, err := ops.New(w.store, w.js, ops.Config{}).Tally(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range tally.Checks {
		if !c.OK {
			names = append(names, fmt.Sprintf("%s: %d and %d", c.Name, c.Left, c.Right))
		}
	}
	return tally, names
}

// first returns the sequence of the oldest message under a filter.
func first(t *testing.T, s natsjs.Stream, filter string) uint64 {
	t.Helper()
	m, err := s.GetMsg(t.Context(), 1, natsjs.WithGetMsgSubject(filter))
	if err != nil {
		t.Fatal(err)
	}
	return m.Sequence
}

// TestTally_finds_what_is_missing takes single messages away behind everybody's back.
func TestTally_finds_what_is_missing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.must(t, "publish", "job", "crm", "x", fmt.Sprint(i))
			w.must(t, "publish", "event", "order.placed", fmt.Sprint(i))
		}
		if tally, bad := differing(t, w); len(bad) != 0 || tally.Settled || tally.Waiting.Outbox != 6 || tally.SentJobs != 0 {
			t.Errorf("before forwarding: %+v %q", tally, bad)
		}
		w.forward(t)
		if tally, bad := differing(t, w); len(bad) != 0 || tally.Settled || tally.Waiting.Jobs != 3 || tally.SentJobs != 3 || tally.SentEvents != 3 {
			t.Errorf("after forwarding: %+v %q", tally, bad)
		}
		jobs, err := w.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if err := jobs.DeleteMsg(t.Context(), first(t, jobs, "mb.jobs.>")); err != nil {
			t.Fatal(err)
		}
		if _, bad := differing(t, w); fmt.Sprint(bad) != "[jobs sent are waiting or settled: 3 and 2]" {
			t.Errorf("a job is gone: %q", bad)
		}
		events, err := w.js.Stream(t.Context(), "MB_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if err := events.DeleteMsg(t.Context(), first(t, events, "mb.events.>")); err != nil {
			t.Fatal(err)
		}
		if err := jobs.Purge(t.Context(), natsjs.WithPurgeSubject("mb.jobs.>")); err != nil {
			t.Fatal(err)
		}
		tally, bad := differing(t, w)
		if !tally.Settled || tally.Balanced || fmt.Sprint(bad) != "[jobs sent are waiting or settled: 3 and 0 events sent are in the stream: 3 and 2]" {
			t.Errorf("all jobs and an event are gone: %+v %q", tally, bad)
		}
		r := w.run(t, "status", "--tally")
		if r.code != 3 {
			t.Errorf("status: %s", r)
		}
		contains(t, r.stdout, "3 ≠ 0", "differs")
	})
}

// TestTally_counts_lives_of_replayed_messages follows letters of jobs and events through replay, second death and drop.
func TestTally_counts_lives_of_replayed_messages(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := w.die(t, "crm", "error: a"), w.die(t, "crm", "error: b")
		// What die leaves out is that both were sent.
		sent := func(stream schema.Stream, n int64) {
			ref, err := w.store.Shards(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			owner := schema.NewID()
			if _, ok, err := w.store.Acquire(t.Context(), ref[0].ShardRef, owner, testLease); err != nil || !ok {
				t.Fatal(ok, err)
			}
			_, err = w.store.Remove(t.Context(), schema.RemoveParams{ShardRef: ref[0].ShardRef, Owner: owner, Batch: ref[0].Batch + 1, Total: ref[0].Total + n, CursorSeq: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.store.Release(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
		}
		sent(schema.Jobs, 2)
		balanced := func(when string) ops.Tally {
			t.Helper()
			tally, bad := differing(t, w)
			if len(bad) > 0 {
				t.Errorf("%s: %q in %+v", when, bad, tally)
			}
			return tally
		}
		balanced("two dead")
		w.must(t, "poison", "replay", a.ID)
		balanced("one replayed")
		w.must(t, "poison", "drop", b.ID)
		if tally := balanced("one dropped"); tally.Settled || tally.Dead != (ops.Dead{Replayed: 1, Dropped: 1}) {
			t.Errorf("dead: %+v", tally)
		}
		letters, _, err := deadletters.New(w.js, w.subjects, 0).List(t.Context(), deadletters.Filter{Tombstones: true})
		if err != nil || len(letters) != 2 {
			t.Fatal(letters, err)
		}
		dead, err := w.js.Stream(t.Context(), "MB_DEAD")
		if err != nil {
			t.Fatal(err)
		}
		if err := dead.DeleteMsg(t.Context(), letters[0].Seq); err != nil {
			t.Fatal(err)
		}
		if _, bad := differing(t, w); len(bad) != 1 {
			t.Errorf("a mark is gone: %q", bad)
		}
	})
}

// TestTally_with_everything_that_can_happen uses a real bridge: letters of a target and of a subscription, replays that
// succeed and that fail again, a key used twice for different content, a foreign message.
func TestTally_with_everything_that_can_happen(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		crm, audit := newFaulty(), newFaulty()
		w.bridgeWith(t, func(b *router.Bridge) error {
			return errors.Join(
				b.Target(handlers.Target{Name: "crm", Handler: crm, Policy: quick(2)}),
				b.Subscribe(handlers.Subscription{Name: "audit", Events: []string{"order.*"}, Handler: audit, Policy: quick(2), From: handlers.FromAll}))
		})
		for i := range 4 {
			w.must(t, "publish", "job", "crm", "x", "--key", fmt.Sprint("job-", i))
			w.must(t, "publish", "event", "order.placed", "--key", fmt.Sprint("event-", i))
		}
		foreign := nats.NewMsg("mb.jobs.crm.x")
		foreign.Header.Set("mb-version", "99")
		if _, err := w.js.PublishMsg(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		w.given(t, 9)
		w.balanced(t, ops.Dead{Letters: 9})

		crm.repair("job-3")
		audit.repair("event-3")
		r := w.run(t, "poison", "replay", "--all", "--yes")
		if r.code != 1 || !strings.Contains(r.stderr, "1 of 9 messages failed") {
			t.Errorf("the foreign message cannot be replayed: %s", r)
		}
		w.given(t, 3) // that one, and those that died again
		w.balanced(t, ops.Dead{Letters: 3, Replayed: 8})

		crm.repair()
		w.must(t, "poison", "drop", "--target", "audit")
		w.must(t, "poison", "replay", "--target", "crm", "--name", "x", "--error", "out of order")
		w.given(t, 1)
		w.balanced(t, ops.Dead{Letters: 1, Replayed: 9, Dropped: 1})
	})
}

// balanced waits until the tally balances and says this of dead letters.
func (w *world) balanced(t *testing.T, dead ops.Dead) {
	t.Helper()
	testkit.Eventually(t, testTimeout, func() error {
		tally, bad := differing(t, w)
		if !tally.Balanced || tally.Dead != dead {
			return fmt.Errorf("%q in %+v, want %+v", bad, tally, dead)
		}
		return nil
	})
}
