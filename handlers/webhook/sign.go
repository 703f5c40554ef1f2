package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Header names of Standard Webhooks 1.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 24
	maxSecret    = 64

	// DefaultTolerance is how far apart the clocks of sender and receiver may be, delivery included.
	DefaultTolerance = 5 * time.Minute
)

// ErrNotGenuine reports a request that was not signed with the secret, or too long ago.
var ErrNotGenuine = errors.New("the request is not genuine")

// Verify checks what a receiver got: that body and header are as they were signed with secret, and signed within
// tolerance of now; 0 means [DefaultTolerance]. The error wraps [ErrNotGenuine] unless the secret itself is bad. To
// take each message once, the receiver must also remember its webhook-id for longer than the tolerance.
func Verify(secret string, header http.Header, body []byte, tolerance time.Duration) error {
	return verify(secret, header, body, tolerance, time.Now())
}

func verify(secret string, header http.Header, body []byte, tolerance time.Duration, now time.Time) error {
	key, err := parseSecret(secret)
	if err != nil {
		return err
	}
	one := func(name string) (value string) {
		if vs := header.Values(name); len(vs) == 1 {
			value = vs[0]
		}
		return value
	}
	id, stamp, signatures := one(HeaderID), one(HeaderTimestamp), one(HeaderSignature)
	if id == "" || stamp == "" || signatures == "" {
		return fmt.Errorf("%w: each of %s, %s and %s is needed once", ErrNotGenuine, HeaderID, HeaderTimestamp, HeaderSignature)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the timestamp is not a number", ErrNotGenuine)
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: it was signed %v ago", ErrNotGenuine, age.Round(time.Second))
	}
	want := []byte(signature(key, id, stamp, body))
	for got := range strings.SplitSeq(signatures, " ") {
		if hmac.Equal([]byte(got), want) {
			return nil
		}
	}
	return fmt.Errorf("%w: no signature fits", ErrNotGenuine)
}

// Sign returns the entry of the signature header that [Verify] accepts, for a request that is signed at this time. The
// request has the time in its timestamp header, in Unix seconds. Entries of several secrets are separated by spaces.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := parseSecret(secret)
	if err != nil {
		return "", err
	}
	return signature(key, id, strconv.FormatInt(at.Unix(), 10), body), nil
}

// signature returns one entry of the signature header.
func signature(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// parseSecret returns a secret's bytes. Its errors do not repeat it.
func parseSecret(s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("a secret starts with %s", secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("a secret is %s and base64", secretPrefix)
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return nil, fmt.Errorf("a secret has %d to %d bytes, not %d", minSecret, maxSecret, len(key))
	}
	return key, nil
}
