//go:build linux && long

package crash

import (
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
)

const long = true

var (
	cycles   = flag.Int("cycles", 1000, "end after so many cycles")
	messages = flag.Int64("messages", 1_000_000, "and so many messages")
	duration = flag.Duration("duration", 55*time.Minute, "but after this time at the latest")
	stores   = flag.String("stores", "postgres,embedded", "run on these")
	jsonFile = flag.String("json", "", "write the result here")
)

// TestLong goes on killing until there were so many cycles and messages, or the time is up.
func TestLong(t *testing.T) {
	if _, err := programs(); err != nil {
		t.Fatal(err)
	}
	tally := newTally()
	enough := func() bool {
		now := tally.now()
		return now.Cycles >= *cycles && now.Committed >= *messages || time.Since(tally.began) > *duration
	}
	stop := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Println(tally.now())
			case <-stop:
				return
			}
		}
	})
	t.Run("worlds", func(t *testing.T) {
		for i, store := range strings.Split(*stores, ",") {
			t.Run(store, func(t *testing.T) {
				t.Parallel()
				for round := 0; !enough(); round++ {
					seed := *seed + uint64(1000*i+round)
					t.Run(fmt.Sprint(round), func(t *testing.T) {
						w := map[string]func(*testing.T, uint64) *world{
							"postgres": func(t *testing.T, seed uint64) *world {
								return newPostgres(t, tally, settings{1200 * time.Millisecond, 2 * time.Second, 4 * time.Second, 3000, 1500, 4}, seed)
							},
							"embedded": func(t *testing.T, seed uint64) *world {
								return newEmbedded(t, tally, settings{1200 * time.Millisecond, 2 * time.Second, 4 * time.Second, 120, 100, 15}, seed)
							},
						}[store](t, seed)
						w.round(enough)
					})
				}
			})
		}
	})
	close(stop)
	progress.Wait()
	got := tally.now()
	fmt.Printf("%s\n%s", got, got.table())
	for _, f := range got.Faults {
		fmt.Println("fault:", f)
	}
	if *jsonFile != "" {
		if err := got.write(*jsonFile); err != nil {
			t.Error(err)
		}
	}
	for _, name := range killpoint.Names {
		if got.Kills[string(name)] == 0 {
			t.Errorf("nothing was killed at %s", name)
		}
	}
}

// round is a few spells of traffic on one database, each followed by a check: with jobs that wait in their stream, and
// then with all of them handled.
func (w *world) round(enough func() bool) {
	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { w.verifyEvery(20*time.Second, stop) })
	defer background.Wait()
	defer close(stop)
	for spell := 0; spell < 3 && !w.t.Failed() && !enough(); spell++ {
		w.storm(20*time.Second, producer, producer, forwarder, forwarder)
		w.calm([]role{forwarder}, func() { w.rest(false) })
		w.storm(40*time.Second, producer, producer, forwarder, forwarder, worker, worker, worker, operator)
		w.calm([]role{forwarder, worker}, func() {
			w.rest(true)
			w.replayAll()
		})
	}
}

// storm is traffic whose fates are up to chance; a server that is a process of its own is killed as well.
func (w *world) storm(d time.Duration, roles ...role) {
	var slots []*slot
	for i, r := range roles {
		chances := w.chances()
		slots = append(slots, w.slot(r, i, 5*time.Second, func() (fate, bool) { return chance(chances, r), true }))
	}
	var server sync.WaitGroup
	if when := time.Duration(w.rand.Int64N(int64(2 * d))); w.server != nil && when < d {
		server.Go(func() {
			<-time.After(when)
			w.restartServer()
		})
	}
	w.traffic(d, slots...)
	server.Wait()
}

// verifyEvery runs millbridge verify on the living world: it must never find anything wrong.
func (w *world) verifyEvery(d time.Duration, stop <-chan struct{}) {
	programs, err := programs()
	if err != nil {
		return
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(d):
		}
		cmd := exec.Command(programs[operator], append([]string{"verify", "--json"}, w.bridgeFlags()...)...)
		out, err := cmd.CombinedOutput()
		switch code := cmd.ProcessState.ExitCode(); {
		case code == 0:
			w.tally.add(func(t *totals) { t.Verified++ })
		case code == 3:
			w.fault("verify found something wrong: %s", out)
		case code == 2:
			w.fault("verify does not understand: %s", out)
			return
		default:
			w.tally.add(func(t *totals) { t.Unverified++ })
			w.t.Logf("verify: %v: %s", err, out)
		}
	}
}
