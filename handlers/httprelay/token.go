package httprelay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// tokens has the one access token that all runs share.
type tokens struct {
	auth  Auth
	fetch func(ctx context.Context, req *http.Request) (*http.Response, []byte, error)
	now   func() time.Time

	turn chan struct{} // has one place: who is in it may ask the token endpoint

	mu     sync.Mutex
	token  string
	until  time.Time // zero: the endpoint did not say
	failed error     // of the last request for a token
	at     time.Time // when it failed
}

// renewAhead is how long before its end a token is renewed, but never more than a tenth of its life.
const renewAhead = 30 * time.Second

// get returns a token that is good for now. However many ask, one of them fetches it; the others wait, and share what
// comes of it.
func (t *tokens) get(ctx context.Context) (string, error) {
	since := t.now()
	if token := t.current(); token != "" {
		return token, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if token := t.current(); token != "" {
		return token, nil
	}
	if err := t.failedSince(since); err != nil {
		return "", err
	}
	token, until, err := t.ask(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // or it is the end of this run, and of no other
			t.failed, t.at = err, t.now()
		}
		return "", err
	}
	t.token, t.until = token, until
	return token, nil
}

func (t *tokens) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.until.IsZero() && !t.now().Before(t.until) {
		return ""
	}
	return t.token
}

func (t *tokens) failedSince(since time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil && t.at.After(since) {
		return t.failed
	}
	return nil
}

// drop forgets a token that was refused, unless there is another one already.
func (t *tokens) drop(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token = ""
	}
}

// request asks for a token with the client's credentials: RFC 6749, section 4.4.2.
func (t *tokens) request(ctx context.Context) (*http.Request, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	for name, value := range map[string]string{"scope": t.auth.Scope, "audience": t.auth.Audience} {
		if value != "" {
			form.Set(name, value)
		}
	}
	post := t.auth.ClientAuth == ClientSecretPost
	if post {
		form.Set("client_id", t.auth.ClientID)
		form.Set("client_secret", t.auth.ClientSecret.Reveal())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.auth.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	req.Header = http.Header{"User-Agent": {userAgent}, "Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	if !post { // both are encoded as in a form first: section 2.3.1
		req.SetBasicAuth(url.QueryEscape(t.auth.ClientID), url.QueryEscape(t.auth.ClientSecret.Reveal()))
	}
	return req, nil
}

// ask returns a new token and when it is to be renewed. A refusal is temporary: it is the fault of the configuration, or of the
// endpoint, and of no message.
func (t *tokens) ask(ctx context.Context) (token string, until time.Time, err error) {
	fail := func(err error) (string, time.Time, error) {
		return "", time.Time{}, fmt.Errorf("ask for a token: %w", err)
	}
	req, err := t.request(ctx)
	if err != nil {
		return fail(err)
	}
	asked := t.now()
	res, body, err := t.fetch(ctx, req)
	var refused *outbound.AddressError
	if schema.KindOf(err) == schema.Permanent && !errors.As(err, &refused) { // an answer that is too long
		err = schema.WithKind(schema.Temporary, err)
	}
	if err != nil {
		return fail(err)
	}
	if verdict := outbound.Verdict(res, asked, outbound.RetryAfterMax); verdict != nil {
		return fail(temporary(fmt.Errorf("%w%s", verdict, oauthError(body)), verdict))
	}
	var answer struct {
		AccessToken string          `json:"access_token"`
		TokenType   string          `json:"token_type"`
		ExpiresIn   json.RawMessage `json:"expires_in"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case err != nil:
		return fail(errors.New("the answer is no token")) // the error of the decoder would quote it
	case !isToken68(answer.AccessToken):
		return fail(errors.New("the answer has no token that a header can carry"))
	case !strings.EqualFold(answer.TokenType, "bearer"): // section 7.1: a type that is not understood must not be used
		return fail(errors.New("the token is of another type than bearer"))
	}
	seconds, err := strconv.ParseFloat(string(bytes.Trim(answer.ExpiresIn, `"`)), 64)
	if err != nil || seconds <= 0 || seconds > 1e9 { // section 5.1: it may be left out
		return answer.AccessToken, time.Time{}, nil
	}
	life := time.Duration(seconds * float64(time.Second))
	return answer.AccessToken, asked.Add(life - min(renewAhead, life/10)), nil
}

// oauthErrors are those of RFC 6749, section 5.2.
var oauthErrors = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}

// oauthError returns what the endpoint says, if it is one of the words that it may say. Its description is not shown: it
// may repeat what was sent.
func oauthError(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(oauthErrors, answer.Error) {
		return ""
	}
	return ": " + answer.Error
}

// readBody reads an answer to its end, or to the limit. What switches protocols has no end.
func readBody(res *http.Response, limit int) (body []byte, err error) {
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	switch {
	case err != nil && res.StatusCode/100 == 2:
		return nil, fmt.Errorf("answered %d, but the answer broke off: %w", res.StatusCode, err)
	case len(body) > limit && res.StatusCode/100 == 2:
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("answered %d with more than %d bytes", res.StatusCode, limit))
	case err != nil || len(body) > limit:
		return nil, nil // the status says enough
	}
	return body, nil
}
