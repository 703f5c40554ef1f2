package httprelay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// send makes a request and reads the answer. With oauth2 a 401 is answered with a new token, once: the request was not
// looked at.
func (r *relay) send(ctx context.Context, f *filled) (res *http.Response, body []byte, err error) {
	if r.auth.Type != AuthOAuth2 {
		return r.sendWith(ctx, f, r.auth.fixed())
	}
	for attempt := 1; ; attempt++ {
		token, err := r.tokens.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		res, body, err := r.sendWith(ctx, f, "Bearer "+token)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			return res, body, err
		}
		r.tokens.drop(token)
		if attempt == 2 {
			return res, body, nil
		}
	}
}

func (r *relay) sendWith(ctx context.Context, f *filled, authorization string) (*http.Response, []byte, error) {
	var content io.Reader
	if f.body != nil {
		content = bytes.NewReader(f.body)
	}
	req, err := http.NewRequestWithContext(ctx, f.method, f.url, content)
	if err != nil || req.URL.Host != r.base.Host {
		return nil, nil, handlers.Permanent(errors.New("the request cannot be made"))
	}
	req.Header = r.head(f, authorization, false)
	res, body, err := r.fetch(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", strings.ToLower(f.method), err)
	}
	return res, body, nil
}

// fetch makes one request, for an action or for a token, and reads the answer.
func (r *relay) fetch(ctx context.Context, req *http.Request) (*http.Response, []byte, error) {
	attempt, cancel := context.WithTimeoutCause(ctx, r.timeout, errNoAnswer)
	defer cancel()
	req = req.WithContext(attempt)
	req.GetBody = nil // or the transport sends a second time by itself when the answer does not come
	// Not through http.Client: it would follow redirects and put the whole URL into its errors.
	res, err := r.transport.RoundTrip(req)
	if err != nil {
		return nil, nil, r.failed(ctx, attempt, err)
	}
	body, err := readBody(res, r.maxResponse)
	if err == nil && attempt.Err() != nil { // a server that ends its answer because we hang up has not given it
		err = attempt.Err()
	}
	if err != nil && schema.KindOf(err) != schema.Permanent {
		return nil, nil, r.failed(ctx, attempt, err)
	}
	return res, body, err
}

// failed gives the error of a request without an answer its kind.
func (r *relay) failed(ctx, attempt context.Context, err error) error {
	var refused *outbound.AddressError
	switch {
	case ctx.Err() != nil: // not our deadline: whoever ended the run knows what it means
		return context.Cause(ctx)
	case errors.As(err, &refused):
		return handlers.Permanent(refused)
	case attempt.Err() != nil:
		return schema.WithKind(schema.Temporary, fmt.Errorf("%w within %v", errNoAnswer, r.timeout))
	}
	return schema.WithKind(schema.Temporary, err)
}

// lookUp reports whether the message was handled before, and hands back what was found.
func (r *relay) lookUp(ctx context.Context, a *action, look *filledLookUp) (found bool, err error) {
	res, body, err := r.send(ctx, &look.filled)
	if err != nil {
		return false, fmt.Errorf("look-up: %w", err)
	}
	d := parse(body)
	if !a.Lookup.Absent.isZero() && a.Lookup.Absent.holds(res.StatusCode, d) {
		return false, nil
	}
	if err := r.verdict(res); err != nil {
		return false, fmt.Errorf("look-up: %w%s", err, r.reason(a, d))
	}
	if d == nil {
		return false, fmt.Errorf("look-up: %w", errNotJSON)
	}
	entries := []any{d.root}
	if each := a.Lookup.Each; each != "" {
		list, _ := d.at(each)
		all, ok := list.([]any)
		if !ok { // nobody must take this for "there is nothing"
			return false, handlers.Permanent(errors.New("look-up: the answer has no list at " + each))
		}
		entries = all
	}
	for _, entry := range entries {
		e := &document{entry}
		if !slices.ContainsFunc(look.found, func(c Check) bool { return !c.holds(e) }) {
			return true, report(ctx, e, a.Lookup.Report)
		}
	}
	return false, nil
}

// errNotJSON is temporary: a proxy that shows a page for people will stop to do so.
var errNotJSON = schema.WithKind(schema.Temporary, errors.New("the answer is not JSON"))

// judge turns the answer to an action into what Handle returns; see the table in the package's documentation.
func (r *relay) judge(ctx context.Context, a *action, res *http.Response, body []byte) error {
	d := parse(body)
	for _, c := range a.Done {
		if c.holds(res.StatusCode, d) {
			return reportIfThere(ctx, d, a.Report)
		}
	}
	for i, c := range a.Permanent {
		if c.holds(res.StatusCode, d) {
			return handlers.Permanent(fmt.Errorf("answered %d, as permanent.%d says%s", res.StatusCode, i, r.reason(a, d)))
		}
	}
	for i, c := range a.Temporary {
		if c.holds(res.StatusCode, d) {
			err := fmt.Errorf("answered %d, as temporary.%d says%s", res.StatusCode, i, r.reason(a, d))
			return temporary(err, r.verdict(res))
		}
	}
	if d == nil && res.StatusCode/100 == 2 && len(bytes.TrimSpace(body)) > 0 && a.looksInside(res.StatusCode) {
		return fmt.Errorf("answered %d: %w", res.StatusCode, errNotJSON) // what it says could not be looked for
	}
	s := a.Success
	if len(s.Status) == 0 && res.StatusCode/100 != 2 || len(s.Status) > 0 && !s.holds(res.StatusCode, d) || s.JSON != nil && !s.holds(res.StatusCode, d) {
		return r.noSuccess(a, res, d)
	}
	if a.Report == "" || a.Report == "." && len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if d == nil {
		return errNotJSON
	}
	return report(ctx, d, a.Report)
}

// looksInside reports whether an answer with the status may have an error inside.
func (a *action) looksInside(status int) bool {
	return slices.ContainsFunc(slices.Concat(a.Permanent, a.Temporary), func(c Condition) bool {
		return c.JSON != nil && (len(c.Status) == 0 || slices.Contains(c.Status, status))
	})
}

// noSuccess is the error of an answer that no condition names.
func (r *relay) noSuccess(a *action, res *http.Response, d *document) error {
	err := r.verdict(res)
	switch {
	case err == nil && d == nil && a.Success.JSON != nil:
		return fmt.Errorf("answered %d: %w", res.StatusCode, errNotJSON)
	case err == nil:
		return handlers.Permanent(fmt.Errorf("answered %d, but not as success says%s", res.StatusCode, r.reason(a, d)))
	}
	return fmt.Errorf("%w%s", err, r.reason(a, d))
}

// verdict judges a status that no condition names. A 401 is temporary here: what proves who we are is of the
// configuration, and no message can help it.
func (r *relay) verdict(res *http.Response) error {
	err := outbound.Verdict(res, r.now(), outbound.RetryAfterMax)
	if res.StatusCode == http.StatusUnauthorized {
		return schema.WithKind(schema.Temporary, err)
	}
	return err
}

// temporary keeps the wait that the answer asks for.
func temporary(err, verdict error) error {
	if wait, ok := schema.RetryAfterOf(verdict); ok {
		return handlers.RetryAfter(err, wait)
	}
	return schema.WithKind(schema.Temporary, err)
}

// maxReason is how many bytes of an answer's reason an error has.
const maxReason = 500

// reason returns what the answer says went wrong, as one line without secrets.
func (r *relay) reason(a *action, d *document) string {
	if a.Reason == "" || d == nil {
		return ""
	}
	value, _ := d.at(a.Reason)
	text, ok := value.(string)
	if !ok || text == "" {
		return ""
	}
	text = configgroup.Mask(text, append([]string{r.tokens.current()}, r.secrets...)...)
	return ": " + schema.OneLine(text[:min(len(text), maxReason)])
}

// report hands back what is at the path, which must be there.
func report(ctx context.Context, d *document, path string) error {
	if path == "" {
		return nil
	}
	value, found := d.at(path)
	if !found {
		return handlers.Permanent(fmt.Errorf("done, but the answer has nothing at %s to report", path))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return handlers.Permanent(fmt.Errorf("done, but the report: %w", err))
	}
	return handlers.Report(ctx, json.RawMessage(text))
}

// reportIfThere is for answers that say that it was done before: they may look like an error.
func reportIfThere(ctx context.Context, d *document, path string) error {
	if d == nil || path == "" {
		return nil
	}
	if _, found := d.at(path); !found {
		return nil
	}
	return report(ctx, d, path)
}
