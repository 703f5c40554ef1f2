package webhook

import (
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

// DefaultTolerance is how far apart the clocks of sender and receiver may be, delivery included.
const DefaultTolerance = 5 * time.Minute

// maxSignatures is how many entries of the signature header are looked at: each takes time to verify, and anybody can
// send many.
const maxSignatures = 16

// ErrNotGenuine reports a request that was not signed with the secret, or too long ago.
var ErrNotGenuine = errors.New("the request is not genuine")

// Verify checks what a receiver got: that body and header are as they were signed, within tolerance of now; 0 means
// [DefaultTolerance]. The key is a shared secret ("whsec_...") or a public key ("whpk_..."). The error wraps
// [ErrNotGenuine] unless the key itself is bad. To take each message once, the receiver must also remember its webhook-id
// for longer than the tolerance: see [Receiver].
func Verify(key string, header http.Header, body []byte, tolerance time.Duration) error {
	verify, err := parseVerifier(key)
	if err != nil {
		return fmt.Errorf("the key %w", err)
	}
	_, err = check([]verifier{verify}, header, body, tolerance, time.Now())
	return err
}

// Sign returns the entry of the signature header that [Verify] accepts, for a request that is signed at this time. The
// secret is a shared one ("whsec_...") or a secret key ("whsk_..."). The request has the time in its timestamp header, in
// Unix seconds. Entries of several secrets are separated by spaces.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	sign, err := parseSigner(secret)
	if err != nil {
		return "", fmt.Errorf("the secret %w", err)
	}
	return sign(content(id, strconv.FormatInt(at.Unix(), 10), body)), nil
}

// content is what is signed.
func content(id, stamp string, body []byte) []byte {
	b := make([]byte, 0, len(id)+len(stamp)+2+len(body))
	b = append(append(b, id...), '.')
	b = append(append(b, stamp...), '.')
	return append(b, body...)
}

// check returns the id of a request that one of the keys has signed.
func check(keys []verifier, header http.Header, body []byte, tolerance time.Duration, now time.Time) (id string, err error) {
	one := func(name string) (value string) {
		if vs := header.Values(name); len(vs) == 1 {
			value = vs[0]
		}
		return value
	}
	id, stamp, signatures := one(HeaderID), one(HeaderTimestamp), one(HeaderSignature)
	if id == "" || stamp == "" || signatures == "" {
		return "", fmt.Errorf("%w: each of %s, %s and %s is needed once", ErrNotGenuine, HeaderID, HeaderTimestamp, HeaderSignature)
	}
	if strings.Contains(id, ".") { // or a signature would be good for other ids, with the rest of the body
		return "", fmt.Errorf("%w: %s has a full stop in it", ErrNotGenuine, HeaderID)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return "", fmt.Errorf("%w: the timestamp is not a number", ErrNotGenuine)
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return "", fmt.Errorf("%w: it was signed %v ago", ErrNotGenuine, age.Round(time.Second))
	}
	signed, looked := content(id, stamp, body), 0
	for entry := range strings.SplitSeq(signatures, " ") {
		if looked++; looked > maxSignatures {
			break
		}
		for _, verify := range keys {
			if verify(signed, entry) {
				return id, nil
			}
		}
	}
	return "", fmt.Errorf("%w: no signature fits", ErrNotGenuine)
}
