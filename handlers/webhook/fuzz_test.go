package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Whatever a receiver answers, there is one verdict, and no wait is longer than the limit.
func FuzzVerdict(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "99999999999999999999", "Sun, 06 Nov 2094 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "1.5", " 7"} {
		f.Add(503, s)
		f.Add(404, s)
	}
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	e := &endpoint{now: func() time.Time { return now }, retryAfterMax: time.Hour}
	f.Fuzz(func(t *testing.T, status int, retryAfter string) {
		err := e.verdict(status, retryAfter)
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

// Only what was signed with the secret is taken.
func FuzzVerify(f *testing.F) {
	key := []byte("0123456789abcdefghijklmnop")
	secret := secretPrefix + base64.StdEncoding.EncodeToString(key)
	now := time.Unix(1_790_000_000, 0)
	good := signature(key, "id", "1790000000", []byte("body"))
	f.Add("id", "1790000000", good, []byte("body"))
	f.Add("id", "1790000000", "v1,x "+good, []byte("body"))
	f.Add("id.1", "790000000", good, []byte("body"))
	f.Fuzz(func(t *testing.T, id, stamp, signatures string, body []byte) {
		header := http.Header{HeaderID: {id}, HeaderTimestamp: {stamp}, HeaderSignature: {signatures}}
		err := verify(secret, header, body, 0, now)
		if err != nil {
			if !errors.Is(err, ErrNotGenuine) {
				t.Fatal(err)
			}
			return
		}
		seconds, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || time.Unix(seconds, 0).Sub(now).Abs() > DefaultTolerance || id == "" {
			t.Fatalf("%q %q is taken", id, stamp)
		}
	})
}
