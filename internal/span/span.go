// Package span reads and writes time spans as Go does, and days: "1.5s", "10m", "7d", "1d12h".
package span

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Parse reads a time span.
func Parse(s string) (time.Duration, error) {
	var days float64
	rest := s
	var err error
	if number, after, ok := strings.Cut(s, "d"); ok {
		if days, err = strconv.ParseFloat(number, 64); err == nil {
			rest = after
		}
	}
	var d time.Duration
	if err == nil && (rest != "" || s == "") {
		d, err = time.ParseDuration(rest)
	}
	sum := days*24*float64(time.Hour) + float64(d)
	if err != nil || !(math.Abs(sum) < math.MaxInt64) { // also NaN
		return 0, fmt.Errorf("%s is not a time span such as 500ms, 30s, 10m or 7d", strconv.Quote(schema.OneLine(s)))
	}
	return time.Duration(sum), nil
}

// Format writes a time span as Parse reads it.
func Format(d time.Duration) string {
	const day = 24 * time.Hour
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
