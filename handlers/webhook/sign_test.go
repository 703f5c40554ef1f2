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

const (
	secretA = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	secretB = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// secret64 is the longest secret allowed: the bytes 0 to 63.
func secret64() string {
	key := make([]byte, 64)
	for i := range key {
		key[i] = byte(i)
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// vectors were computed apart from this code: the first two are published with the Standard Webhooks libraries, all
// four come out of Python's hmac and the last one out of openssl dgst too.
func vectors() []struct{ secret, id, stamp, body, want string } {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	return []struct{ secret, id, stamp, body, want string }{
		{"whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", "1731705121", `{"event_type":"ping","data":{"success":true}}`, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="},
		{secretB, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		{secret64(), "01890a5d-ac96-774b-bcce-b302099a8057", "1893456000", string(all[:]), "v1,XfJAITjE/xqyoxSzQtVKGzyOMp4w08jDHVSXQb+lvRs="},
		{secret64(), "x", "0", "", "v1,M0SN7lQPuaQC/WNqtLmdzeHAtch+GsFQTkXcxqY2udU="},
	}
}

func TestSignature_vectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors() {
		key, err := base64.StdEncoding.DecodeString(v.secret[len("whsec_"):]) // the first one is shorter than we accept
		if err != nil {
			t.Fatal(err)
		}
		if got := signature(key, v.id, v.stamp, []byte(v.body)); got != v.want {
			t.Errorf("%s: got %s, want %s", v.id, got, v.want)
		}
	}
}

func TestSign_is_what_Verify_accepts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	entry, err := Sign(secretA, "msg_1", now, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{HeaderID: {"msg_1"}, HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)}, HeaderSignature: {"v1,AAAA " + entry}}
	if err := Verify(secretA, header, []byte("body"), 0); err != nil {
		t.Error(err)
	}
	if err := Verify(secretB, header, []byte("body"), 0); !errors.Is(err, ErrNotGenuine) {
		t.Errorf("another secret: %v", err)
	}
	if _, err := Sign("whsec_short", "msg_1", now, nil); err == nil {
		t.Error("signed with a bad secret")
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	v := vectors()[1]
	signedAt := time.Unix(1614265330, 0)
	genuine := func() http.Header {
		h := make(http.Header)
		h.Set("webhook-id", v.id)
		h.Set("webhook-timestamp", v.stamp)
		h.Set("webhook-signature", "v1a,AAAA v1,AAAA "+v.want+" v1,")
		return h
	}
	if err := verify(v.secret, genuine(), []byte(v.body), 0, signedAt); err != nil {
		t.Fatalf("the genuine request: %v", err)
	}
	for _, age := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
		if err := verify(v.secret, genuine(), []byte(v.body), 0, signedAt.Add(age)); err != nil {
			t.Errorf("%v old: %v", age, err)
		}
	}
	tests := map[string]func(h http.Header, body *string, secret *string, now *time.Time){
		"another body":       func(_ http.Header, body, _ *string, _ *time.Time) { *body += " " },
		"another secret":     func(_ http.Header, _, secret *string, _ *time.Time) { *secret = secretA },
		"another id":         func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-id", "x") },
		"another timestamp":  func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-timestamp", "1614265331") },
		"moved border":       func(h http.Header, body, _ *string, _ *time.Time) { h.Set("webhook-id", v.id+"."+v.stamp) },
		"too old":            func(_ http.Header, _, _ *string, now *time.Time) { *now = now.Add(5*time.Minute + 1) },
		"from the future":    func(_ http.Header, _, _ *string, now *time.Time) { *now = now.Add(-5*time.Minute - 1) },
		"no timestamp":       func(h http.Header, _, _ *string, _ *time.Time) { h.Del("webhook-timestamp") },
		"bad timestamp":      func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-timestamp", "now") },
		"no id":              func(h http.Header, _, _ *string, _ *time.Time) { h.Del("webhook-id") },
		"two ids":            func(h http.Header, _, _ *string, _ *time.Time) { h.Add("webhook-id", v.id) },
		"no signature":       func(h http.Header, _, _ *string, _ *time.Time) { h.Del("webhook-signature") },
		"empty signature":    func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-signature", " ") },
		"another version":    func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-signature", "v2"+v.want[2:]) },
		"cut signature":      func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-signature", v.want[:20]) },
		"signature and more": func(h http.Header, _, _ *string, _ *time.Time) { h.Set("webhook-signature", v.want+",x") },
	}
	for name, spoil := range tests {
		h, body, secret, now := genuine(), v.body, v.secret, signedAt
		spoil(h, &body, &secret, &now)
		if err := verify(secret, h, []byte(body), 0, now); !errors.Is(err, ErrNotGenuine) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if err := verify(v.secret, genuine(), []byte(v.body), time.Second, signedAt.Add(2*time.Second)); !errors.Is(err, ErrNotGenuine) {
		t.Errorf("an own tolerance is ignored: %v", err)
	}
	if err := Verify(v.secret, genuine(), []byte(v.body), 0); !errors.Is(err, ErrNotGenuine) {
		t.Errorf("a request of 2021 is taken now: %v", err)
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	encode := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, s := range []string{secretA, encode(24), encode(25), encode(64)} {
		if _, err := parseSecret(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", "whsec_", secretA[6:], "whsk_" + secretA[6:], secretA[:37], "whsec_*" + secretA[7:], "whsec_plJ3nmyCDGBKInavdOK15jsl", encode(23), encode(65), encode(0)} {
		_, err := parseSecret(s)
		if err == nil {
			t.Errorf("secret %q accepted", s)
		} else if len(s) > 10 && strings.Contains(err.Error(), s[6:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}
