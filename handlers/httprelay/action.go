package httprelay

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/schema"
)

// An Action is the request that a message becomes. Path, query, headers and body may have fields of the message in them, as
// package fields has them: "/holds/{{.payload.hold_id}}".
type Action struct {
	// Method is GET, POST, PUT, PATCH or DELETE.
	Method string `json:"method"`
	// Path is below the base URL and begins with "/". A field is one part of it, whatever it has in it.
	Path string `json:"path"`
	// Query are the parameters.
	Query map[string]string `json:"query,omitempty"`
	// Headers are added to those of the target.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as it is but for its fields, which are escaped as ContentType wants it.
	Body string `json:"body,omitempty"`
	// ContentType is that of Body; empty means application/json.
	ContentType string `json:"content_type,omitempty"`
	// Success is what an answer must be like; without status any 2xx will do.
	Success Condition `json:"success,omitzero"`
	// Done are answers that say that it was done before, which counts as success.
	Done []Condition `json:"done,omitempty"`
	// Permanent and Temporary are answers that mean something else than their status does.
	Permanent []Condition `json:"permanent,omitempty"`
	Temporary []Condition `json:"temporary,omitempty"`
	// Reason is the path of a text in the answer that says what went wrong. It becomes part of the error.
	Reason string `json:"reason,omitempty"`
	// Report is the path of what is handed back from the answer, "." for all of it.
	Report string `json:"report,omitempty"`
	// Lookup finds out first whether there is anything to do.
	Lookup *Lookup `json:"lookup,omitempty"`
}

// A Lookup is a GET before the request of an action. What it finds means that the message was handled before.
type Lookup struct {
	// Path, Query and Headers are as those of an action.
	Path    string            `json:"path"`
	Query   map[string]string `json:"query,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Each is the path of a list in the answer, of which each entry is looked at; empty means the answer itself.
	Each string `json:"each,omitempty"`
	// Found is what an entry must be like, in all these places.
	Found []Check `json:"found"`
	// Absent is an answer without 2xx that says that there is nothing, such as a 404.
	Absent Condition `json:"absent,omitzero"`
	// Report is the path, in the entry, of what is handed back; "." for all of it.
	Report string `json:"report,omitempty"`
}

// methods that an action may have.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// action is an Action that can be filled in.
type action struct {
	Action
	request request
	lookup  *request
}

// request is a request without a message's fields.
type request struct {
	method  string
	path    *fields.Template
	query   []named
	headers []named
	body    *body
}

type named struct {
	name string
	text *fields.Template
}

// compile returns everything that is wrong with the action, each fault with the key that it begins with.
func (a Action) compile(c Config) (*action, []error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	compiled := &action{Action: a}
	var faults []error
	compiled.request, faults = compileRequest(c, a.Path, a.Query, a.Headers)
	errs = append(errs, faults...)
	compiled.request.method = a.Method
	if !slices.Contains(methods, a.Method) {
		fault("method: %q is none of %s", schema.OneLine(a.Method), strings.Join(methods, ", "))
	}
	if a.Body != "" && a.Method == http.MethodGet {
		fault("body: a GET has none")
	}
	if a.ContentType != "" && a.Body == "" {
		fault("content_type: there is no body")
	}
	if a.Body != "" {
		var err error
		if compiled.request.body, err = compileBody(a.Body, a.ContentType); err != nil {
			errs = append(errs, err)
		}
	}
	if !a.Success.isZero() {
		for _, err := range a.Success.faults() {
			fault("success%w", err)
		}
	}
	for name, list := range map[string][]Condition{"done": a.Done, "permanent": a.Permanent, "temporary": a.Temporary} {
		for i, condition := range list {
			for _, err := range condition.faults() {
				fault("%s.%d%w", name, i, err)
			}
		}
	}
	for name, path := range map[string]string{"reason": a.Reason, "report": a.Report} {
		if path != "" && checkPath(path) != nil {
			fault("%s: %w", name, checkPath(path))
		}
	}
	if l := a.Lookup; l != nil {
		r, faults := compileRequest(c, l.Path, l.Query, l.Headers)
		r.method = http.MethodGet
		compiled.lookup = &r
		for _, err := range append(faults, l.faults()...) {
			fault("lookup.%w", err)
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return compiled, errs
}

func (l Lookup) faults() []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(l.Found) == 0 {
		fault("found: is missing")
	}
	for i, check := range l.Found {
		err := check.fault()
		if err == nil {
			_, err = check.template()
		}
		if err != nil {
			fault("found.%d: %w", i, err)
		}
	}
	for name, path := range map[string]string{"each": l.Each, "report": l.Report} {
		if path != "" && checkPath(path) != nil {
			fault("%s: %w", name, checkPath(path))
		}
	}
	if !l.Absent.isZero() {
		for _, err := range l.Absent.faults() {
			fault("absent%w", err)
		}
	}
	return errs
}

func compileRequest(c Config, path string, query, headers map[string]string) (request, []error) {
	var r request
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var err error
	switch {
	case !strings.HasPrefix(path, "/"):
		fault("path: does not begin with /")
	case strings.ContainsAny(path, "?#\\"):
		fault("path: has a query, a fragment or a backslash; a query has a key of its own")
	case hasWrongPath(path):
		fault("path: %w", errWrongPath)
	default:
		if r.path, err = fields.Parse(path, fields.URL); err != nil {
			fault("path: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		t, err := fields.Parse(query[name], fields.Text)
		if name == "" {
			err = errors.New("has no name")
		}
		if err != nil {
			fault("query: %s: %w", schema.OneLine(name), err)
		}
		r.query = append(r.query, named{name, t})
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		t, err := fields.Parse(headers[name], fields.Header)
		if err == nil {
			err = checkHeader(name, "")
		}
		if err == nil && c.owns(name) {
			err = errors.New("is not free")
		}
		if err != nil {
			fault("headers: %s: %w", schema.OneLine(name), err)
		}
		r.headers = append(r.headers, named{http.CanonicalHeaderKey(name), t})
	}
	return r, errs
}

// hasWrongPath reports whether a path has an empty part, or one that leads up. One "/" at the end is none.
func hasWrongPath(path string) bool {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	for _, part := range parts {
		if part == "" && path != "" && path != "/" || part == "." || part == ".." {
			return true
		}
	}
	return false
}

// body is what is sent, and how its fields are escaped.
type body struct {
	text        *fields.Template
	contentType string
	form        bool
}

func compileBody(text, contentType string) (*body, error) {
	b := &body{contentType: contentType}
	if contentType == "" {
		b.contentType = "application/json"
	}
	media, _, err := mime.ParseMediaType(b.contentType)
	if err != nil || !isHeaderValue(b.contentType) {
		return nil, errors.New("content_type: is no media type")
	}
	kind := fields.Text
	switch {
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		kind = fields.JSON
	case media == "application/x-www-form-urlencoded":
		b.form, kind, text = true, fields.URL, "?"+text
	case media == "text/plain", text == "{{.payload}}", !strings.Contains(text, "{{"):
	default:
		return nil, errors.New("body: nobody knows how fields are escaped in this content type: it can be {{.payload}} or have no fields")
	}
	if b.text, err = fields.Parse(text, kind); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return b, nil
}

func (b *body) render(m *fields.Message) ([]byte, error) {
	text, err := b.text.Render(m)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if b.form {
		text = strings.TrimPrefix(text, "?")
	}
	return []byte(text), nil
}
