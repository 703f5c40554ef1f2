package outbound

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func answer(status int, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: http.NoBody}
}

func TestVerdict_table(t *testing.T) {
	t.Parallel()
	success, temporary, permanent := "success", "temporary", "permanent"
	want := func(status int) string {
		switch status {
		case 301, 308:
			return permanent
		case 408, 425, 429:
			return temporary
		}
		switch status / 100 {
		case 2:
			return success
		case 3, 5:
			return temporary
		}
		return permanent
	}
	for status := 100; status < 1000; status++ {
		got := success
		err := Verdict(answer(status, ""), time.Now(), time.Hour)
		if err != nil {
			got = schema.KindOf(err).String()
			var bad *StatusError
			if !errors.As(err, &bad) || bad.Status != status {
				t.Errorf("%d: the error does not carry the code: %v", status, err)
			}
		}
		if got != want(status) {
			t.Errorf("%d is %s, want %s", status, got, want(status))
		}
	}
	for status, text := range map[int]string{
		410: "answered 410 Gone", 302: "answered 302 Found; redirects are not followed",
		503: "answered 503 Service Unavailable", 799: "answered 799",
	} {
		if got := Verdict(answer(status, ""), time.Now(), time.Hour).Error(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func TestVerdict_retry_after(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 2, 12, 0, 0, 500_000_000, time.UTC)
	verdict := func(status int, retryAfter string) error {
		return Verdict(answer(status, retryAfter), now, 10*time.Minute)
	}
	const none = time.Duration(0)
	for value, want := range map[string]time.Duration{
		"":                               none,
		"3":                              3 * time.Second,
		"0":                              none,
		"00007":                          7 * time.Second,
		"600":                            10 * time.Minute,
		"601":                            10 * time.Minute,
		"999999999":                      10 * time.Minute,
		strings.Repeat("9", 400):         10 * time.Minute,
		"9223372036854775807":            10 * time.Minute,
		"-1":                             none,
		"+3":                             none,
		"3.5":                            none,
		"soon":                           none,
		"3 seconds":                      none,
		"0x10":                           none,
		"Mon, 02 Nov 2026 12:00:10 GMT":  9500 * time.Millisecond,
		"Monday, 02-Nov-26 12:00:10 GMT": 9500 * time.Millisecond,
		"Mon Nov  2 12:00:10 2026":       9500 * time.Millisecond,
		"Mon, 02 Nov 2026 12:00:00 GMT":  none,
		"Sun, 01 Nov 2026 12:00:00 GMT":  none,
		"Fri, 31 Dec 9999 23:59:59 GMT":  10 * time.Minute,
		"2026-11-02T12:00:10Z":           none,
	} {
		for _, status := range []int{429, 503, 500, 302} {
			err := verdict(status, value)
			got, ok := schema.RetryAfterOf(err)
			if ok != (want > 0) || got != want || schema.KindOf(err) != schema.Temporary {
				t.Errorf("%d with %.40q: wait %v, %v, kind %v; want %v", status, value, got, ok, schema.KindOf(err), want)
			}
		}
		if wait, ok := schema.RetryAfterOf(verdict(410, value)); ok {
			t.Errorf("410 with %q waits %v", value, wait)
		}
	}
	if wait, ok := parseRetryAfter("9999999999999", now); !ok || wait < math.MaxInt64/2 {
		t.Errorf("a huge number is %v, %v", wait, ok)
	}
}

// Whatever a server answers, there is one verdict, and no wait is longer than the limit.
func FuzzVerdict(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "99999999999999999999", "Sun, 06 Nov 2094 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "1.5", " 7"} {
		f.Add(503, s)
		f.Add(404, s)
	}
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, retryAfter string) {
		err := Verdict(answer(status, retryAfter), now, time.Hour)
		if (err == nil) != (status/100 == 2) {
			t.Fatalf("%d gives %v", status, err)
		}
		if err == nil {
			return
		}
		if kind := schema.KindOf(err); kind != schema.Temporary && kind != schema.Permanent {
			t.Fatalf("%d %q gives an error of kind %v", status, retryAfter, kind)
		}
		if wait, ok := parseRetryAfter(retryAfter, now); ok && wait <= 0 {
			t.Fatalf("%q asks to wait %v", retryAfter, wait)
		}
	})
}
