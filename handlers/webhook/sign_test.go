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
		if got := symmetric(key)(content(v.id, v.stamp, []byte(v.body))); got != v.want {
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

// verify is Verify at another time.
func verify(key string, header http.Header, body []byte, tolerance time.Duration, now time.Time) error {
	v, err := parseVerifier(key)
	if err != nil {
		return err
	}
	_, err = check([]verifier{v}, header, body, tolerance, now)
	return err
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

// What is signed is three parts with dots between them: nobody must be able to move the borders and have another message
// with another id, which no ledger knows.
func TestVerify_knows_where_the_parts_end(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stamp := strconv.FormatInt(now.Unix(), 10)
	entry, err := Sign(secretA, "msg_1", now, []byte(stamp+".rest"))
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{HeaderID: {"msg_1"}, HeaderTimestamp: {stamp}, HeaderSignature: {entry}}
	if err := Verify(secretA, header, []byte(stamp+".rest"), 0); err != nil {
		t.Fatal(err)
	}
	header.Set(HeaderID, "msg_1."+stamp)
	if err := Verify(secretA, header, []byte("rest"), 0); !errors.Is(err, ErrNotGenuine) {
		t.Errorf("borders moved: %v", err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	symmetric := func(n int) string { return symmetricPrefix + encode(make([]byte, n)) }
	for _, s := range []string{secretA, symmetric(24), symmetric(25), symmetric(64)} {
		if _, err := parseSigner(s); err != nil {
			t.Error(err)
		}
	}
	swapped := secretPrefix + encode(append(must(decode(vectorSecret[len(secretPrefix):]))[:32], make([]byte, 32)...))
	for _, s := range []string{vectorSecret, secretPrefix + encode(make([]byte, 32))} {
		if _, err := parseSigner(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{
		"", "whsec_", secretA[6:], "whsk_" + secretA[6:], secretA[:37], "whsec_*" + secretA[7:], "whsec_plJ3nmyCDGBKInavdOK15jsl", symmetric(23), symmetric(65), symmetric(0),
		secretA + "\n", "whsk_", vectorSecret[:60], vectorSecret[5:], swapped, "whsk_" + vectorPublic[5:44],
	} {
		for _, parse := range []func(string) error{
			func(s string) error { _, err := parseSigner(s); return err },
			func(s string) error { _, err := parseVerifier(s); return err },
		} {
			err := parse(s)
			if err == nil {
				t.Errorf("secret %q accepted", s)
			} else if len(s) > 10 && strings.Contains(err.Error(), s[6:]) {
				t.Errorf("the error repeats the secret: %v", err)
			}
		}
	}
	if _, err := parseSigner(vectorPublic); err == nil || !strings.Contains(err.Error(), "public key") {
		t.Errorf("a public key signs: %v", err)
	}
}

// asymmetricVector is published with the Svix server (server/svix-server/src/worker.rs and README.md of
// https://github.com/svix/svix-webhooks); its signature is also the example in Standard Webhooks 1.0, "Webhook headers".
const (
	vectorSecret = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	vectorID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorStamp  = "1614265330"
	vectorBody   = `{"test": 2432232314}`
	vectorEntry  = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)

func TestAsymmetric_vector(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	seed := secretPrefix + encode(must(decode(vectorSecret[len(secretPrefix):]))[:32])
	for _, secret := range []string{vectorSecret, seed} {
		if got, err := Sign(secret, vectorID, at, []byte(vectorBody)); err != nil || got != vectorEntry {
			t.Errorf("signed %s, error %v", got, err)
		}
		if got, err := PublicKey(secret); err != nil || got != vectorPublic {
			t.Errorf("public key %s, error %v", got, err)
		}
	}
	if _, err := PublicKey(vectorPublic); err == nil {
		t.Error("a public key is taken for a secret one")
	}
	other := publicPrefix + encode(make([]byte, 31)) + "A="
	for key, want := range map[string]bool{vectorPublic: true, vectorSecret: true, seed: true, other: false, secretB: false} {
		header := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {vectorStamp}, HeaderSignature: {vectors()[0].want + " " + vectorEntry}}
		if err := verify(key, header, []byte(vectorBody), 0, at); (err == nil) != want {
			t.Errorf("%.10s: error %v, want success %v", key, err, want)
		}
		if err := verify(key, header, []byte(vectorBody+" "), 0, at); err == nil {
			t.Errorf("%.10s: another body is genuine", key)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An entry of one kind must not pass as one of the other: "v1a," with an HMAC, or "v1," with a public key as the secret.
func TestVerify_does_not_confuse_kinds(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	shared := symmetricPrefix + vectorPublic[len(publicPrefix):] // what a forger knows, taken for a shared secret
	forged := must(Sign(shared, vectorID, at, []byte(vectorBody)))
	for _, entry := range []string{forged, "v1a" + forged[2:], "v1a,", "v1a", "v1," + vectorEntry[4:], vectorEntry[:40], vectorEntry + "\n", "v1a, " + vectorEntry[4:]} {
		header := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {vectorStamp}, HeaderSignature: {entry}}
		if err := verify(vectorPublic, header, []byte(vectorBody), 0, at); !errors.Is(err, ErrNotGenuine) {
			t.Errorf("%q: error %v", entry, err)
		}
	}
}

func TestVerify_looks_at_few_signatures(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	for before, want := range map[int]bool{0: true, maxSignatures - 1: true, maxSignatures: false, 10_000: false} {
		header := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {vectorStamp}, HeaderSignature: {strings.Repeat(vectorEntry[:90]+"A= ", before) + vectorEntry}}
		if err := verify(vectorPublic, header, []byte(vectorBody), 0, at); (err == nil) != want {
			t.Errorf("after %d others: error %v, want success %v", before, err, want)
		}
	}
}
