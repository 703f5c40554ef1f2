package main

import (
	"strings"
	"testing"
)

// A check that finds nothing proves nothing: each fault is put in and must be found.
func TestTracker_finds_what_is_wrong(t *testing.T) {
	t.Parallel()
	const n = 3 * keys
	all := func(change func(seqs []int) []int) []int {
		seqs := make([]int, n)
		for i := range seqs {
			seqs[i] = i
		}
		return change(seqs)
	}
	for name, c := range map[string]struct {
		seqs    []int
		inOrder bool
		want    string
	}{
		"nothing": {all(func(s []int) []int { return s }), true, ""},
		"lost":    {all(func(s []int) []int { return append(s[:7], s[8:]...) }), true, "1 of 3000 messages are missing"},
		"doubled": {all(func(s []int) []int { return append(s, 7) }), true, "1 messages came twice"},
		"foreign": {all(func(s []int) []int { return append(s, n) }), true, "1 messages are not of this run"},
		"reordered within a key": {all(func(s []int) []int {
			s[5], s[5+keys] = s[5+keys], s[5]
			return s
		}), true, "1 messages came before others of their key"},
		"reordered between keys": {all(func(s []int) []int {
			s[5], s[6] = s[6], s[5]
			return s
		}), true, ""},
		"reordered where there is no order": {all(func(s []int) []int {
			s[5], s[5+keys] = s[5+keys], s[5]
			return s
		}), false, ""},
	} {
		tr := newTracker(n)
		for _, seq := range c.seqs {
			tr.saw(payload(seq))
		}
		err := tr.fault(c.inOrder)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestPayload_has_its_size_and_number(t *testing.T) {
	t.Parallel()
	for _, seq := range []int{0, 1, 999, 123_456, 99_999_999} {
		for _, w := range []work{usual, {payload: 64 << 10}, {payload: 4 << 10, metadata: 32}} {
			if p := w.payloadOf(seq); len(p) != w.payload || seqOf(p) != seq {
				t.Errorf("payload %d has %d bytes and number %d: %s", seq, len(p), seqOf(p), p)
			}
			if m := w.metadataOf(seq); len(m) != w.metadata {
				t.Errorf("message %d has %d metadata entries, want %d", seq, len(m), w.metadata)
			}
		}
	}
	if seq := seqOf([]byte(`{"seq": 1000000007, "x": 1}`)); seq != 7 {
		t.Errorf("JSON that was formatted anew has number %d", seq)
	}
	if seq := seqOf([]byte(`{"other":1}`)); seq != -1 {
		t.Errorf("a payload without a number has %d", seq)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	if got, want := spreadOf([]float64{3, 1, 2}), (spread{2, 1, 3}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := spreadOf([]float64{4, 1}), (spread{2.5, 1, 4}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
