package postgres

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestHorizon(t *testing.T) {
	t.Parallel()
	h := newHorizon()
	now := time.Now()
	rise := func(identity string, xmin, want int64) {
		t.Helper()
		if got := h.rise(identity, xmin); got != want {
			t.Fatalf("bound %d in a snapshot at %d, want %d", got, xmin, want)
		}
	}
	rise("a", 50, 0)
	if !h.due(10, now) || h.due(10, now) {
		t.Fatal("want one observation at a time")
	}
	h.add("a", observation{seq: 10, xid: 100}, nil)
	if h.due(20, now.Add(observeEvery/2)) || h.due(10, now.Add(time.Minute)) {
		t.Fatal("want no observation so soon, and none that gains nothing")
	}
	if !h.due(20, now.Add(observeEvery)) {
		t.Fatal("want an observation")
	}
	h.add("a", observation{seq: 20, xid: 110}, nil)
	rise("a", 99, 0)
	rise("a", 100, 10)
	rise("a", 109, 10)
	// Another reader is ahead. What it has learned is not true of the older snapshot.
	rise("a", 120, 20)
	rise("a", 105, 0)
	rise("a", 120, 20)

	// An observation that failed, or that was made on another server, is none.
	if !h.due(30, now.Add(time.Hour)) {
		t.Fatal("want an observation")
	}
	h.add("a", observation{seq: 30, xid: 130}, errors.New("cut off"))
	if !h.due(30, now.Add(2*time.Hour)) {
		t.Fatal("want another try")
	}
	h.add("b", observation{seq: 30, xid: 130}, nil)
	rise("a", 1000, 20)
	rise("b", 1000, 0)
}

// A transaction that stays open for long costs a bounded memory, and the newest observation counts when it ends.
func TestHorizon_long_transaction(t *testing.T) {
	t.Parallel()
	h := newHorizon()
	now := time.Now()
	h.rise("a", 1)
	for i := int64(1); i <= 1000; i++ {
		now = now.Add(observeEvery)
		if !h.due(i, now) {
			t.Fatalf("no observation at %d", i)
		}
		h.add("a", observation{seq: i, xid: 100 + i}, nil)
	}
	if len(h.pending) > maxPending {
		t.Errorf("%d observations are kept", len(h.pending))
	}
	if got := h.rise("a", 110); got != 10 {
		t.Errorf("bound %d, want the early ones to count, too", got)
	}
	if got := h.rise("a", 5000); got != 1000 {
		t.Errorf("bound %d, want the newest", got)
	}
}

// A rest is only as far as what came to stay is known, and below what is still to be sent.
func TestRest(t *testing.T) {
	t.Parallel()
	made := []observation{{seq: 10, xid: 100}, {seq: 20, xid: 110}, {seq: 30, xid: 120}}
	for name, c := range map[string]struct {
		open  []int64
		bound int64
		want  rest
	}{
		"nobody":                            {[]int64{}, 1000, rest{seq: 30, xid: 120, open: []int64{}}},
		"one that stays":                    {[]int64{50}, 1000, rest{seq: 30, xid: 120, open: []int64{50}}},
		"one that came later":               {[]int64{50, 105}, 1000, rest{seq: 10, xid: 100, open: []int64{50}}},
		"one that came after all":           {[]int64{50, 120, 130}, 1000, rest{seq: 30, xid: 120, open: []int64{50}}},
		"two that stay, a row in flight":    {[]int64{50, 60}, 25, rest{seq: 25, xid: 120, open: []int64{50, 60}}},
		"one between the last observations": {[]int64{50, 115}, 1000, rest{seq: 20, xid: 110, open: []int64{50}}},
	} {
		got := restAt(made, snapshot{open: c.open}, c.bound)
		if got.seq != c.want.seq || got.xid != c.want.xid || !slices.Equal(got.open, c.want.open) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := restAt(nil, snapshot{open: []int64{5}}, 7); got.seq != 0 || got.xid != 0 || got.open != nil {
		t.Errorf("without observations: %+v", got)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]snapshot{
		"740:740:":                         {xmin: 740, open: []int64{}},
		"740:750:740,743,749":              {xmin: 740, open: []int64{740, 743, 749}},
		"4294967299:4294967301:4294967299": {xmin: 1<<32 + 3, open: []int64{1<<32 + 3}}, // beyond the first wrap-around
	} {
		if got, err := parseSnapshot(text); err != nil || got.xmin != want.xmin || !slices.Equal(got.open, want.open) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "740", "740:750", "x:750:", "740:750:x", "740:750:740:741"} {
		if got, err := parseSnapshot(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}
