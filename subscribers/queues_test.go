package subscribers

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// Whatever arrives in whatever order: of each key only the first is out, and the oldest of all that may be comes first.
func TestQueues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		q := newQueues()
		keys := map[uint64]string{} // of what is in hand
		var out, waiting []*held
		first := func(key string, except uint64) (seq uint64) {
			for s, k := range keys {
				if k == key && (seq == 0 || s < seq) && (key != "" || s == except) {
					seq = s
				}
			}
			return seq
		}
		busy := func(seq uint64) bool {
			return slices.ContainsFunc(out, func(h *held) bool {
				return h.d.Sequence == seq || keys[seq] != "" && keys[h.d.Sequence] == keys[seq]
			})
		}
		pick := func(from *[]*held) *held {
			i := rapid.IntRange(0, len(*from)-1).Draw(rt, "which")
			h := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return h
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				seq := uint64(rapid.IntRange(1, 30).Draw(rt, "sequence"))
				key := []string{"", "a", "b", "c"}[seq%4]
				_, known := keys[seq]
				if added := q.add(&nats.Msg{}, &Delivery{Sequence: seq}, key); added == known {
					rt.Fatalf("%d was added: %v", seq, added)
				}
				keys[seq] = key
			},
			"next": func(rt *rapid.T) {
				var want uint64
				for seq, key := range keys {
					isWaiting := slices.ContainsFunc(waiting, func(h *held) bool { return h.d.Sequence == seq })
					if !busy(seq) && !isWaiting && first(key, seq) == seq && (want == 0 || seq < want) {
						want = seq
					}
				}
				h := q.next()
				switch {
				case h == nil && want != 0:
					rt.Fatalf("nothing is next, want %d", want)
				case h != nil && h.d.Sequence != want:
					rt.Fatalf("%d is next, want %d", h.d.Sequence, want)
				case h != nil:
					out = append(out, h)
				}
			},
			"wait": func(rt *rapid.T) {
				if len(out) == 0 {
					return
				}
				h := pick(&out)
				h.waiting = time.NewTimer(time.Hour)
				q.back(h)
				waiting = append(waiting, h)
			},
			"due": func(rt *rapid.T) {
				if len(waiting) == 0 {
					return
				}
				h := pick(&waiting)
				h.waiting.Stop()
				h.waiting = nil
				q.offerFirst(h.queue)
			},
			"settle": func(rt *rapid.T) {
				if len(out) == 0 {
					return
				}
				h := pick(&out)
				q.remove(h)
				delete(keys, h.d.Sequence)
			},
			"": func(rt *rapid.T) {
				if len(q.bySeq) != len(keys) || len(q.sorted()) != len(keys) || len(keys) == 0 && (len(q.byID) > 0 || q.bytes != 0) {
					rt.Fatalf("%d messages in hand, %d keys, %d bytes; want %d", len(q.bySeq), len(q.byID), q.bytes, len(keys))
				}
			},
		})
	})
}
