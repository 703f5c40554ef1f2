package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Only what was signed with the secret is taken.
func FuzzVerify(f *testing.F) {
	key := []byte("0123456789abcdefghijklmnop")
	secret := symmetricPrefix + base64.StdEncoding.EncodeToString(key)
	now := time.Unix(1_790_000_000, 0)
	good := symmetric(key)(content("id", "1790000000", []byte("body")))
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
