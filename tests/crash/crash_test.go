//go:build linux

package crash

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
)

// quick is for tests that must end soon.
var quick = settings{
	lease: 600 * time.Millisecond, ackWait: time.Second, zombieTime: 2 * time.Second,
	rate: 300, most: 100, jobs: 25,
}

// Each place kills a process once, while others go on: nothing is lost, doubled, reordered or invented, and a handler
// that fails or is stopped uses up no attempt that it has not made.
func TestC37_kill_at_every_step(t *testing.T) {
	t.Parallel()
	w := newPostgres(t, newTally(), quick, 1)
	at := func(names ...killpoint.Name) (fates []fate) {
		for _, n := range names {
			fates = append(fates, fate{kind: killedAt, point: n, pass: 1})
		}
		return fates
	}
	strict := func(r role, n int, fates []fate) *slot {
		s := w.slot(r, n, time.Minute, inOrder(fates...))
		s.strict = true
		return s
	}
	w.traffic(0,
		// One forwarder: a second one that lives on would keep all shards.
		strict(forwarder, 1, at(killpoint.BeforeRead, killpoint.AfterAdd, killpoint.BeforeRenewal, killpoint.AfterBatchCommit, killpoint.AfterTakeOver,
			killpoint.BeforeRemoval, killpoint.AfterRead, killpoint.BeforeTakeOver, killpoint.BeforeAdd, killpoint.AfterRemoval,
			killpoint.BeforeBatchCommit, killpoint.AfterRenewal)),
		strict(worker, 1, at(killpoint.BeforeHandler, killpoint.BeforeEffect, killpoint.BeforeInbox, killpoint.BeforeFailure,
			killpoint.BeforeVerdict, killpoint.BeforeLetter, killpoint.BeforeAck, killpoint.BeforeRunRenewal)),
		strict(worker, 2, at(killpoint.AfterHandler, killpoint.AfterEffect, killpoint.AfterInbox, killpoint.AfterFailure,
			killpoint.AfterVerdict, killpoint.AfterLetter, killpoint.AfterAck, killpoint.AfterRunRenewal)),
		strict(producer, 1, at(killpoint.ProducerBeforeCommit, killpoint.ProducerAfterCommit)))
	// Letters are left to be replayed, several of them once all jobs have come to their end.
	w.calm([]role{forwarder, worker}, func() { w.rest(true) })
	for _, f := range at(killpoint.BeforeReplay, killpoint.AfterReplay, killpoint.AfterTombstone) {
		w.calm(nil, func() { strict(operator, 1, nil).live(f, nil) })
	}
	w.calm([]role{forwarder, worker}, func() {
		w.rest(true)
		w.replayAll()
	})
	got := w.tally.now()
	t.Log(got.String())
	for _, name := range killpoint.Names {
		if got.Kills[string(name)] == 0 {
			t.Errorf("nothing was killed at %s", name)
		}
	}
}

// Processes that sleep for longer than every lease find that others have taken over; those that are asked to stop with
// work in flight leave no trace.
func TestZombies_and_stops(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		stop := fate{kind: asked, after: 700 * time.Millisecond}
		slot := func(r role, n int, fates ...fate) *slot {
			s := w.slot(r, n, 3*time.Minute, inOrder(fates...))
			s.strict = true
			return s
		}
		// The second forwarder begins when the first one sleeps: before, it might get the shards and keep them.
		sleeps := make(chan struct{})
		heir := slot(forwarder, 2, stop)
		first := heir.next
		heir.next = func() (fate, bool) {
			<-sleeps
			return first()
		}
		w.traffic(0,
			slot(forwarder, 1,
				fate{kind: zombieAt, point: killpoint.BeforeBatchCommit, pass: 2, successor: sync.OnceFunc(func() { close(sleeps) })},
				fate{kind: killed, after: time.Second}),
			heir,
			slot(worker, 1, stop, fate{kind: zombieAt, point: killpoint.AfterEffect, pass: 5}),
			slot(worker, 2, fate{kind: zombie, after: time.Second}),
			slot(producer, 1, stop))
		w.calm([]role{forwarder, worker}, func() { w.rest(true) })
		got := w.tally.now()
		t.Log(got.String())
		if got.Zombies < 3 || got.Stops < 3 {
			t.Errorf("%d processes slept and %d were stopped, want 3 and 3: this test saw too little", got.Zombies, got.Stops)
		}
	})
}

func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newPostgres(t, newTally(), quick, 1))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		s := quick
		s.rate, s.most = 100, 50
		test(t, newEmbedded(t, newTally(), s, 1))
	})
}

// Only a build with the tag has the places: another does not even have the names of the variables that arm them.
func TestKill_points_are_not_in_a_plain_build(t *testing.T) {
	t.Parallel()
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "millbridge")
	if err := goCommand("build", "-o", plain, "./cmd/millbridge"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{all[forwarder]: true, plain: false} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"MILLBRIDGE_KILL", "MILLBRIDGE_PAUSE", string(killpoint.BeforeRead), string(killpoint.AfterTombstone)} {
			if bytes.Contains(text, []byte(s)) != want {
				t.Errorf("%s contains %q: %v, want %v", file, s, !want, want)
			}
		}
	}
}

// Processes are killed at random times while jobs go through; in the long form, as many as the case says.
func TestC37_random_kills(t *testing.T) {
	t.Parallel()
	kills, jobs := 12, int64(500)
	if long {
		kills, jobs = 200, 10_000
	}
	s := quick
	s.jobs = 100
	w := newPostgres(t, newTally(), s, *seed)
	slot := func(r role, n int) *slot {
		chances := w.chances()
		return w.slot(r, n, time.Minute, func() (fate, bool) {
			have, err := w.count(t.Context(), `SELECT count(*) FROM proof_committed WHERE stream = 'jobs'`)
			if err != nil {
				w.fault("count the jobs: %v", err)
			}
			return fate{kind: killed, after: time.Duration(chances.Int64N(int64(2 * time.Second)))}, w.tally.now().Kills["random"] < kills || have < jobs
		})
	}
	w.traffic(0, slot(producer, 1), slot(producer, 2), slot(forwarder, 1), slot(forwarder, 2), slot(worker, 1), slot(worker, 2))
	w.calm([]role{forwarder, worker}, func() {
		w.rest(true)
		w.replayAll()
	})
	t.Log(w.tally.now().String())
}
