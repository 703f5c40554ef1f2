package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	observeEvery = 100 * time.Millisecond
	maxPending   = 64
)

// A horizon finds sequences up to which nothing can be committed any more. It is shared by all readers of a process.
//
// It notes the sequence's last value S, and afterwards gets itself a transaction id X. Whoever has drawn a number up to
// S had a transaction id before, so one below X. Once a snapshot shows no transaction below X in progress, the
// numbers up to S that are not visible belong to nobody.
type horizon struct {
	mu       sync.Mutex
	identity string        // of the database that the observations are about
	reached  observation   // nothing can be committed at or below its sequence
	pending  []observation // waiting, oldest first
	next     time.Time     // no observation before
	busy     bool          // one is being made
	query    string        // sqlObserve, unless a test says otherwise
}

type observation struct {
	seq int64 // S
	xid int64 // X
}

func newHorizon() *horizon { return &horizon{query: sqlObserve} }

// rise tells of a snapshot in which no transaction below xmin is in progress. It returns the sequence up to which that
// snapshot shows all there is; 0 if it is older than what another reader has told of.
func (h *horizon) rise(identity string, xmin int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.identity != identity {
		h.identity, h.reached, h.pending = identity, observation{}, nil
	}
	n := 0
	for n < len(h.pending) && h.pending[n].xid <= xmin {
		h.reached = h.pending[n]
		n++
	}
	h.pending = append(h.pending[:0], h.pending[n:]...)
	if h.reached.xid > xmin {
		return 0
	}
	return h.reached.seq
}

// due reports whether it is time for an observation that could gain something; the caller must then make it.
func (h *horizon) due(lastSeq int64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := h.reached.seq
	if n := len(h.pending); n > 0 {
		newest = h.pending[n-1].seq
	}
	if h.busy || lastSeq <= newest || now.Before(h.next) {
		return false
	}
	h.busy, h.next = true, now.Add(observeEvery)
	return true
}

func (h *horizon) add(identity string, o observation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
	if err != nil || identity != h.identity {
		return
	}
	if len(h.pending) == maxPending { // a long transaction holds all back; the oldest and the newest gain most
		h.pending = slices.Delete(h.pending, maxPending/2, maxPending/2+1)
	}
	h.pending = append(h.pending, o)
}

// waiting returns the observations that wait for transactions to end, oldest first.
func (h *horizon) waiting(identity string) []observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.identity != identity {
		return nil
	}
	return slices.Clone(h.pending)
}

// A rest is a place beside the floor: a read found nothing up to seq, and whoever can still commit a number up to there
// has a transaction id below xid and was open in that read's snapshot. As long as the same ones are open, there is
// nothing to find. Without it a transaction that stays open for hours would make each read walk over all that was sent
// meanwhile.
type rest struct {
	seq, xid int64
	open     []int64 // transactions below xid, in ascending order
}

// restAt returns the rest for what a read has shown: nothing is left up to bound, the observations were made before it,
// and now is its snapshot. Only what came to stay counts: those that were open at the
// oldest observation.
func restAt(made []observation, now snapshot, bound int64) (at rest) {
	for _, o := range made {
		stay := now.below(o.xid)
		if at.xid != 0 && len(stay) > len(at.open) {
			break
		}
		at = rest{seq: min(o.seq, bound), xid: o.xid, open: stay}
	}
	return at
}

// A snapshot says which transactions its statement sees.
type snapshot struct {
	xmin int64   // no transaction below is in progress
	open []int64 // those in progress, in ascending order
}

// below are the transactions in progress below xid.
func (s snapshot) below(xid int64) []int64 {
	n, _ := slices.BinarySearch(s.open, xid)
	return s.open[:n:n]
}

// parseSnapshot reads the text of a pg_snapshot: xmin, xmax and those between that are in progress. To have the server
// take it apart costs as much as all else that a read asks.
func parseSnapshot(text string) (snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("snapshot %q has %d parts, want 3", text, len(parts))
	}
	xmin, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	s := snapshot{xmin: xmin, open: []int64{}}
	for xid := range strings.SplitSeq(parts[2], ",") {
		if xid == "" {
			continue
		}
		n, err := strconv.ParseInt(xid, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
		}
		s.open = append(s.open, n)
	}
	slices.Sort(s.open)
	return s, nil
}

// sqlLastSeq is the last number that was drawn; a sequence that was not used yet says what the first will be.
const sqlLastSeq = `(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM millbridge.outbox_seq)`

// sqlObserve reads the sequence in a CTE, which is done before the transaction id is drawn.
const sqlObserve = `WITH s AS MATERIALIZED (SELECT ` + sqlLastSeq + ` AS last_seq)
	SELECT s.last_seq, pg_current_xact_id()::text::bigint, coalesce(` + sqlIdentity + `, '') FROM s`

// observe makes one observation.
func (s *Store) observe(ctx context.Context) error {
	var identity string
	var o observation
	err := s.pool.QueryRow(ctx, s.horizon.query).Scan(&o.seq, &o.xid, &identity)
	s.horizon.add(identity, o, err)
	return wrap("observe the outbox's sequence", err)
}
