package httprelay

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// Defaults of a [Config].
const (
	DefaultIdempotencyHeader = "Idempotency-Key"
	DefaultRequestTimeout    = outbound.DefaultTimeout
	DefaultMaxResponse       = outbound.MaxBody
)

// A Config describes one API and what is to be done there for each action.
type Config struct {
	// BaseURL is what all paths are below.
	BaseURL *url.URL `key:"base_url" required:"true" doc:"where the API is; the paths of the actions are below it"`
	// Auth says how requests prove who sends them.
	Auth Auth `key:"auth" doc:"how requests prove who sends them"`
	// Headers are added to each request of an action. They are masked in previews.
	Headers map[string]configgroup.Secret `key:"headers" doc:"headers of every request; shown masked"`
	// IdempotencyHeader carries the idempotency key, percent-encoded; empty sends none.
	IdempotencyHeader string `key:"idempotency_header" default:"Idempotency-Key" doc:"header that carries the idempotency key; empty sends none"`
	// RequestTimeout is what each request may take; 0 means [DefaultRequestTimeout].
	RequestTimeout time.Duration `key:"request_timeout" default:"20s" doc:"what each request may take: the look-up, the action's, that for a token"`
	// MaxResponse is how many bytes an answer may have; 0 means [DefaultMaxResponse].
	MaxResponse int `key:"max_response_bytes" default:"1048576" doc:"bytes that an answer may have"`
	// Actions are what messages may ask for, by the name of a job's action or of an event.
	Actions map[string]Action `key:"actions" required:"true" doc:"what messages may ask for, by action"`
	outbound.Settings
}

// Validate reports everything that is wrong with c. Its errors quote no secret, and of URLs nothing.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.BaseURL == nil {
		fault("base_url: is missing")
	} else if err := checkURL(c.BaseURL); err != nil {
		fault("base_url: %w", err)
	} else if c.BaseURL.RawQuery != "" || c.BaseURL.ForceQuery {
		fault("base_url: has a query; it belongs to the actions")
	}
	errs = append(errs, c.Auth.faults()...)
	if c.Auth.header() != "" && !c.AllowPrivate && len(c.AllowedNetworks) == 0 { // whoever calls a house's own network may know better
		if c.BaseURL != nil && c.BaseURL.Scheme == "http" {
			fault("base_url: with auth it must be https, or everybody on the way reads the secret")
		}
		if strings.HasPrefix(strings.ToLower(c.Auth.TokenURL), "http:") {
			fault("auth.token_url: must be https, or everybody on the way reads the secret")
		}
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		key := http.CanonicalHeaderKey(name)
		switch {
		case seen[key]:
			fault("headers: %s is there twice", key)
		case c.owns(name):
			fault("headers: %s is not free", key)
		default:
			if err := checkHeader(name, c.Headers[name].Reveal()); err != nil {
				fault("headers: %w", err)
			}
		}
		seen[key] = true
	}
	if h := c.IdempotencyHeader; h != "" {
		if err := checkHeader(h, ""); err != nil {
			fault("idempotency_header: %w", err)
		} else if strings.EqualFold(h, c.Auth.header()) {
			fault("idempotency_header: %s is not free", http.CanonicalHeaderKey(h))
		}
	}
	if c.RequestTimeout < 0 {
		fault("request_timeout: is %v, must not be negative", c.RequestTimeout)
	}
	if c.MaxResponse < 0 {
		fault("max_response_bytes: is %d, must not be negative", c.MaxResponse)
	}
	if len(c.Actions) == 0 {
		fault("actions: there are none")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Actions)) {
		if schema.CheckName(name) != nil {
			fault("actions: %q is no name: want tokens of a-z, 0-9, '-' and '_', joined by dots", schema.OneLine(name))
			continue
		}
		_, faults := c.Actions[name].compile(c)
		for _, err := range faults {
			fault("actions.%s.%w", name, err)
		}
	}
	if err := c.Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// owns reports whether a header is made from other settings.
func (c Config) owns(name string) bool {
	return c.IdempotencyHeader != "" && strings.EqualFold(name, c.IdempotencyHeader) || c.Auth.header() != "" && strings.EqualFold(name, c.Auth.header())
}

var errWrongPath = errors.New(`has an empty part, or one that is "." or ".."`)

// checkURL does not repeat the URL: path and query often hold a token.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "":
		return errors.New("is not an http or https address")
	case u.User != nil:
		return errors.New("has user information; that belongs to auth")
	case u.Fragment != "":
		return errors.New("has a fragment")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("has no host in ASCII")
	case hasWrongPath(u.EscapedPath()):
		return errWrongPath
	}
	if _, err := fields.Parse(u.EscapedPath(), fields.URL); err != nil { // dots in other words
		return errWrongPath
	}
	return nil
}

// checkHeader refuses what cannot be a header, and what a request is made of.
func checkHeader(name, value string) error {
	if !schema.IsHeaderName(name) {
		return fmt.Errorf("%q is not a header's name", schema.OneLine(name))
	}
	switch low := strings.ToLower(name); low {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
		"accept-encoding", schema.HeaderTraceParent, schema.HeaderTraceState:
		return fmt.Errorf("%s is not free", http.CanonicalHeaderKey(name))
	}
	if strings.HasPrefix(strings.ToLower(name), "proxy-") {
		return fmt.Errorf("%s is not free", http.CanonicalHeaderKey(name))
	}
	if !isHeaderValue(value) {
		return fmt.Errorf("%s: its value cannot be sent", http.CanonicalHeaderKey(name))
	}
	return nil
}

func isHeaderValue(v string) bool {
	return v == strings.Trim(v, " \t") && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f })
}
