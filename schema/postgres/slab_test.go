package postgres_test

import (
	"bytes"
	"testing"

	"github.com/millbridge/millbridge/schema/postgres"
	"pgregory.net/rapid"
)

// Values that share memory are each as they were given, whatever becomes of the others and of where they came from.
func TestSlab(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var slab postgres.Slab
		var kept, want [][]byte
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 2000), rapid.IntRange(7000, 40_000)), 1, 50).Draw(t, "sizes")
		for i, n := range sizes {
			v := bytes.Repeat([]byte{byte(i + 1)}, n)
			kept, want = append(kept, slab.Keep(v)), append(want, bytes.Clone(v))
			clear(v)
		}
		for i := range kept {
			if !bytes.Equal(kept[i], want[i]) || kept[i] == nil {
				t.Fatalf("value %d is %.20q of %d bytes, want %.20q of %d", i, kept[i], len(kept[i]), want[i], len(want[i]))
			}
			_ = append(kept[i], 0xff) // has no room to
		}
		if slab.Keep(nil) != nil {
			t.Fatal("nil is no longer nil")
		}
	})
}
