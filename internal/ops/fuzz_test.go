package ops

import (
	"strconv"
	"testing"
)

func FuzzParseAfter(f *testing.F) {
	for _, s := range []string{"", "handler:7", "forwarder:0", "forwarder:-1", "handler", "x:1", "handler:99999999999999999999", "handler:+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		place, after, err := parseAfter(text)
		if err != nil || text == "" {
			return
		}
		if place != AtForwarder && place != AtHandler || int64(after) < 0 {
			t.Fatalf("%q is %s and %d", text, place, after)
		}
		p2, a2, err := parseAfter(place + ":" + strconv.FormatUint(after, 10))
		if err != nil || p2 != place || a2 != after {
			t.Fatalf("%q is %s and %d, then %s and %d (%v)", text, place, after, p2, a2, err)
		}
	})
}
