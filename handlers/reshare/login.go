package reshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

const (
	pathLogin       = "/authn/login-with-expiry"
	pathLoginLegacy = "/authn/login" // for gateways that do not have the other yet
	cookieToken     = "folioAccessToken"

	// legacyLife is how long a token without an end is used.
	legacyLife = 24 * time.Hour
	// unknownLife is how long a token is used whose answer does not say when it ends.
	unknownLife = 10 * time.Minute
	// refusedWait is how long nobody logs in again after a login was refused. FOLIO blocks a user after 5 refusals within
	// 10 minutes, and several processes may have the same wrong password.
	refusedWait = 15 * time.Minute
)

// session is the log-in of one tenant's user. However many messages need a token, one of them fetches it.
type session struct {
	tenant      string
	credentials Credentials
	client      *client

	mu           sync.Mutex
	token        string
	renewAt      time.Time // halfway to the token's end
	refusal      error     // why we are not let in
	refusedUntil time.Time
	flight       *flight // the login that is under way
}

// flight is one login, and what others who wait for it get.
type flight struct {
	done      chan struct{}
	token     string
	err       error
	abandoned bool // whoever logged in has been told to stop
}

// use returns a token other than stale, which was refused; empty means that none was.
func (s *session) use(ctx context.Context, stale string) (string, error) {
	for {
		token, f, mine, err := s.join(stale)
		if err != nil || token != "" {
			return token, err
		}
		if mine {
			s.fly(ctx, f)
			return f.token, f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", fmt.Errorf("log in: %w", context.Cause(ctx))
		}
		if !f.abandoned {
			return f.token, f.err
		}
	}
}

// join returns the token that is there, or else the login to wait for; mine means that the caller has to make it.
func (s *session) join(stale string) (token string, f *flight, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.now()
	switch {
	case now.Before(s.refusedUntil):
		return "", nil, false, handlers.Snooze(s.refusal, s.refusedUntil.Sub(now))
	case s.token != "" && s.token != stale && now.Before(s.renewAt):
		return s.token, nil, false, nil
	case s.flight != nil:
		return "", s.flight, false, nil
	}
	s.flight = &flight{done: make(chan struct{})}
	return "", s.flight, true, nil
}

// fly logs in and tells those who wait.
func (s *session) fly(ctx context.Context, f *flight) {
	token, life, err := s.logIn(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.client.now()
	var refused *refusedError
	if errors.As(err, &refused) {
		s.refusal, s.refusedUntil = err, now.Add(refusedWait)
		err = handlers.Snooze(err, refusedWait)
	}
	if err == nil {
		s.token, s.renewAt = token, now.Add(life/2)
	}
	f.token, f.err, f.abandoned = token, err, err != nil && ctx.Err() != nil
	s.flight = nil
	close(f.done)
}

// refuse notes that even a new token was refused. Its error snoozes.
func (s *session) refuse(token string, why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.token = ""
		s.refusal, s.refusedUntil = why, s.client.now().Add(refusedWait)
	}
	return handlers.Snooze(why, refusedWait)
}

// A refusedError says that we are not let in, which only an operator can change.
type refusedError struct {
	tenant string
	err    error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("tenant %s does not let us in, and is not asked again for %v: %v", e.tenant, refusedWait, e.err)
}

func (e *refusedError) Unwrap() error { return e.err }

// loginCall is the request of a login; real says whether the password is in it.
func (s *session) loginCall(path string, real bool) call {
	password := s.credentials.Password.String()
	if real {
		password = s.credentials.Password.Reveal()
	}
	body, _ := json.Marshal(map[string]string{"username": s.credentials.Username, "password": password}) // texts cannot fail
	return call{method: http.MethodPost, path: path, body: body}
}

// written returns the password as it may come back: as it is, and as it was sent, in JSON.
func (c Credentials) written() []string {
	password := c.Password.Reveal()
	sent, _ := json.Marshal(password) // a text cannot fail
	return []string{password, string(sent[1 : len(sent)-1])}
}

// logIn fetches a token, and says how long it lives.
func (s *session) logIn(ctx context.Context) (token string, life time.Duration, err error) {
	for _, path := range []string{pathLogin, pathLoginLegacy} {
		var res *http.Response
		var body []byte
		res, body, err = s.client.exchange(ctx, s, s.loginCall(path, true), "")
		switch {
		case err == nil:
			if token, life = tokenOf(res.Header, body, s.client.now()); token == "" {
				return "", 0, fmt.Errorf("POST %s: answered %d without a token", path, res.StatusCode)
			}
			return token, life, nil
		case res != nil && res.StatusCode == http.StatusNotFound:
			continue
		case res != nil && schema.KindOf(err) == schema.Permanent:
			return "", 0, &refusedError{s.tenant, err}
		}
		return "", 0, err
	}
	return "", 0, schema.WithKind(schema.Temporary, err) // a gateway without the module that logs in is being set up
}

// tokenOf finds the token in an answer to a login: in a cookie, or in a header of the older kind.
func tokenOf(header http.Header, body []byte, now time.Time) (token string, life time.Duration) {
	for _, cookie := range (&http.Response{Header: header}).Cookies() {
		if cookie.Name != cookieToken || !isToken(cookie.Value) {
			continue
		}
		life = time.Duration(min(max(cookie.MaxAge, 0), 1<<30)) * time.Second
		var expiry struct {
			AccessTokenExpiration time.Time `json:"accessTokenExpiration"`
		}
		if life == 0 && json.Unmarshal(body, &expiry) == nil {
			life = expiry.AccessTokenExpiration.Sub(now)
		}
		if life <= 0 {
			life = unknownLife
		}
		return cookie.Value, life
	}
	if token = header.Get(headerToken); isToken(token) {
		return token, legacyLife
	}
	return "", 0
}

// isToken reports whether s can be sent back in a header.
func isToken(s string) bool {
	for _, r := range []byte(s) {
		if r <= ' ' || r >= 0x7f {
			return false
		}
	}
	return s != ""
}

// isAddress reports whether err says that the address may not be reached.
func isAddress(err error) bool {
	var refused *outbound.AddressError
	return errors.As(err, &refused)
}
