//go:build linux

package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// totals is what a run comes to.
type totals struct {
	Cycles     int            `json:"cycles"`   // lives that ended, and zombies
	Kills      map[string]int `json:"kills"`    // by place
	Zombies    int            `json:"zombies"`  // stopped for longer than every lease, then let go on
	Slow       int            `json:"slow"`     // held up for longer than every lease
	Stops      int            `json:"stops"`    // asked to stop with work in flight
	Servers    int            `json:"servers"`  // NATS servers killed and started again
	Commands   int            `json:"commands"` // of operators that came to their end
	Committed  int64          `json:"committed"`
	RolledBack int64          `json:"rolled_back"`
	Handled    int64          `json:"handled"`
	Replays    int64          `json:"replays"`
	Repeats    int64          `json:"repeats"` // calls of the outside system that a kill made happen again
	Lost       int            `json:"lost"`
	Doubled    int            `json:"doubled"`
	Reordered  int            `json:"reordered"`
	Invented   int            `json:"invented"`
	Checks     int            `json:"checks"`   // times that all came to rest and was compared
	Verified   int            `json:"verified"` // looks of millbridge verify
	Unverified int            `json:"unverified"`
	Faults     []string       `json:"faults"`
	Seconds    float64        `json:"seconds"`
	Seed       uint64         `json:"seed"`

	Recovery struct {
		N             int `json:"n"`
		P50, P99, Max time.Duration
	} `json:"recovery"`
}

// A tally is shared by all worlds of a run.
type tally struct {
	mu        sync.Mutex
	totals    totals
	recovered []time.Duration
	began     time.Time
}

func newTally() *tally {
	t := &tally{began: time.Now()}
	t.totals.Kills, t.totals.Seed = make(map[string]int), *seed
	return t
}

func (t *tally) add(f func(*totals)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.totals)
}

func (t *tally) recover(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recovered = append(t.recovered, d)
}

// now returns the totals so far.
func (t *tally) now() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.totals
	sum.Kills, sum.Faults = maps.Clone(sum.Kills), slices.Clone(sum.Faults)
	sum.Seconds = time.Since(t.began).Seconds()
	if all := slices.Sorted(slices.Values(t.recovered)); len(all) > 0 {
		sum.Recovery.N, sum.Recovery.P50, sum.Recovery.P99 = len(all), all[len(all)/2], all[len(all)*99/100]
		sum.Recovery.Max = all[len(all)-1]
	}
	return sum
}

func (t totals) String() string {
	kills := 0
	for _, n := range t.Kills {
		kills += n
	}
	return fmt.Sprintf("%.0fs: %d cycles (%d kills, %d zombies, %d held up, %d stops, %d servers), %d messages, %d rolled back, %d handled, %d replays, "+
		"%d repeats; %d checks: %d lost, %d doubled, %d reordered, %d invented, %d faults; verify %d (%d without an answer); "+
		"recovery p50 %v p99 %v max %v",
		t.Seconds, t.Cycles, kills, t.Zombies, t.Slow, t.Stops, t.Servers, t.Committed, t.RolledBack, t.Handled, t.Replays, t.Repeats,
		t.Checks, t.Lost, t.Doubled, t.Reordered, t.Invented, len(t.Faults), t.Verified, t.Unverified,
		t.Recovery.P50.Round(time.Millisecond), t.Recovery.P99.Round(time.Millisecond), t.Recovery.Max.Round(time.Millisecond))
}

// table lists the kills by place.
func (t totals) table() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.Kills)) {
		fmt.Fprintf(&b, "%6d  %s\n", t.Kills[name], name)
	}
	return b.String()
}

func (t totals) write(file string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
