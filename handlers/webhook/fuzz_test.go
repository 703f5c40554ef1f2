package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	f.Add("id", "1790000000", vectorEntry, []byte("body"))
	f.Fuzz(func(t *testing.T, id, stamp, signatures string, body []byte) {
		header := http.Header{HeaderID: {id}, HeaderTimestamp: {stamp}, HeaderSignature: {signatures}}
		if err := verify(vectorPublic, header, body, 0, now); err == nil { // nobody here has the secret key
			t.Fatalf("%q is taken for a signature", signatures)
		}
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

// A key that is read either signs and verifies what it has signed, or is refused without being repeated.
func FuzzKey(f *testing.F) {
	f.Add(secretA)
	f.Add(vectorSecret)
	f.Add(vectorPublic)
	f.Add("whsk_")
	f.Fuzz(func(t *testing.T, key string) {
		now := time.Unix(1_790_000_000, 0)
		entry, err := Sign(key, "id", now, []byte("body"))
		if err != nil {
			if len(key) > 20 && strings.Contains(err.Error(), key[5:]) {
				t.Fatalf("the error repeats the key: %v", err)
			}
			return
		}
		header := http.Header{HeaderID: {"id"}, HeaderTimestamp: {"1790000000"}, HeaderSignature: {entry}}
		if err := verify(key, header, []byte("body"), 0, now); err != nil {
			t.Fatalf("%q: %v", entry, err)
		}
	})
}
