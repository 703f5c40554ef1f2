package ncip_test

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/ncip"
)

func TestDate(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("CET", 3600)
	for date, want := range map[ncip.Date]string{
		"2026-12-28T12:00:00Z":          "2026-12-28T12:00:00Z",
		"2026-12-28T12:00:00.123+02:00": "2026-12-28T10:00:00.123Z",
		"2026-12-28T12:00:00":           "2026-12-28T11:00:00Z",
		"2026-12-28":                    "2026-12-27T23:00:00Z",
	} {
		got, err := date.Time(berlin)
		if err != nil || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, error %v, want %s", date, got, err, want)
		}
	}
	if got, err := ncip.Date("2026-12-28T12:00:00").Time(nil); err != nil || !got.Equal(time.Date(2026, 12, 28, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("without a zone: %v, error %v", got, err)
	}
	for _, bad := range []ncip.Date{"", "tomorrow", "28.12.2026", "2026-12-28T25:00:00Z"} {
		if got, err := bad.Time(nil); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
