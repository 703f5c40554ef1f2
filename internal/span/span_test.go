package span_test

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/span"
)

func TestParse_reads_what_Format_writes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0s": 0, "1.5s": 1500 * time.Millisecond, "10m": 10 * time.Minute, "7d": 168 * time.Hour, "36h": 36 * time.Hour, "90s": 90 * time.Second,
	} {
		got, err := span.Parse(text)
		if err != nil || got != want {
			t.Errorf("%s is %v, error %v", text, got, err)
		}
		if again, err := span.Parse(span.Format(got)); err != nil || again != want {
			t.Errorf("%s is written as %s, which is %v, error %v", text, span.Format(got), again, err)
		}
	}
	for _, bad := range []string{"", "soon", "10", "d", "NaNd", "1e300d"} {
		if d, err := span.Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, d)
		}
	}
	if got := span.Format(14 * 24 * time.Hour); got != "14d" {
		t.Errorf("got %s", got)
	}
}
