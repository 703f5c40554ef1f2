package subscribers

import (
	"strings"
	"testing"
)

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.b", "a", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a", true},
		{"*.b", "a.*", true},
		{"*.b.>", "a.*.c", true},
		{"*.b", "a.c", false},
	} {
		if got := overlap(test.a, test.b); got != test.want {
			t.Errorf("overlap(%q, %q) is %v, want %v", test.a, test.b, got, test.want)
		}
		if got := overlap(test.b, test.a); got != test.want {
			t.Errorf("overlap(%q, %q) is %v, want %v", test.b, test.a, got, test.want)
		}
	}
}

func TestDurableName(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, in := range [][2]string{{"", "a.b"}, {"", "a-b"}, {"", "a_b"}, {"a", "b"}, {"", "ä"}, {"", "ö"}, {"", strings.Repeat("x", 300)}, {"", strings.Repeat("x", 301)}} {
		name := durableName(in[0], in[1])
		spec := ConsumerSpec{Durable: name, Filters: []string{"x"}}
		if err := spec.validate(); err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%q and %q are both %s", in, other, name)
		}
		seen[name] = in[0] + "/" + in[1]
	}
}
