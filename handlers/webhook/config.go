package webhook

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/handlers/outbound"
)

// Defaults of a [Config].
const (
	DefaultTimeout          = 20 * time.Second
	DefaultMaxResponseBytes = 64 << 10
	DefaultRetryAfterMax    = time.Hour
)

// maxHeaders is how many headers of its own a request may have.
const maxHeaders = 64

// A Config describes one endpoint. Only URL is required. Path and query of a URL often hold a token, and so do headers:
// both are secrets.
type Config struct {
	// URL is where messages are posted: http or https, without user information and fragment.
	URL configgroup.Secret `required:"true" doc:"where to post: an http or https address without user information"`
	// Secrets sign the requests: "whsec_" and the base64 of 24 to 64 random bytes, or "whsk_" and the base64 of an ed25519
	// secret key. During a rotation both the old and the new one are here and every request has two signatures. Without
	// any, requests are not signed.
	Secrets []configgroup.Secret `doc:"secrets to sign with (whsec_... or whsk_...), the newest first; a request has one signature for each"`
	// Format says how CloudEvents attributes are sent.
	Format Format `default:"binary" doc:"binary: CloudEvents attributes in headers; structured: a CloudEvent in JSON; raw: none"`
	// Payload is posted in place of the message's payload: JSON with the message's fields in it, see package fields.
	Payload string `doc:"JSON to post in place of the payload, with the message's fields in it"`
	// Headers are added to each request, for example Authorization. They may have fields of the message in them. Those that
	// the request is made of are refused.
	Headers map[string]configgroup.Secret `doc:"headers to add, with the message's fields in them"`
	// MaxResponseBytes is how many bytes of an answer's body are read.
	MaxResponseBytes int64 `default:"65536" doc:"how many bytes of an answer are read"`
	// RetryAfterMax caps the wait that a receiver may ask for.
	RetryAfterMax time.Duration `default:"1h" doc:"longest wait that an answer may ask for"`
	// Settings say what may be reached, and how.
	outbound.Settings

	// Network is used in place of Settings if it is not nil.
	Network *outbound.Network `env:"-"`
	// Timeout is what one attempt may take, from the look-up of the name to the last byte of the answer.
	Timeout time.Duration `env:"-"`
	// Logger gets one line per attempt at level Debug; nil logs nothing.
	Logger *slog.Logger `env:"-"`
	// Now is the clock of timestamps and of Retry-After dates; nil is [time.Now].
	Now func() time.Time `env:"-"`
}

// Validate reports everything that is wrong with c, each fault with the key that it belongs to. It reads no files.
func (c Config) Validate() error {
	_, errs := c.endpoint()
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+": "+format, args...))
	}
	if len(c.Secrets) > maxSignatures {
		bad("secrets", "there are %d, receivers look at %d at most", len(c.Secrets), maxSignatures)
	}
	for i, s := range c.Secrets {
		if _, err := parseSigner(s.Reveal()); err != nil {
			bad("secrets", "number %d %w", i+1, err)
		}
	}
	if int(c.Format) >= len(formatNames) {
		bad("format", "must be one of %s", strings.Join(formatNames[:], ", "))
	}
	if c.Payload != "" {
		_, err := fields.Parse(c.Payload, fields.JSON)
		errs = append(errs, under("payload", err)...)
	}
	_, faults := c.headers()
	errs = append(errs, faults...)
	if c.MaxResponseBytes < 0 {
		bad("max_response_bytes", "must not be negative")
	}
	if c.RetryAfterMax < 0 {
		bad("retry_after_max", "must not be negative")
	}
	if c.Timeout < 0 {
		bad("timeout", "must not be negative")
	}
	if c.Network == nil {
		errs = append(errs, c.Check())
	}
	return errors.Join(errs...)
}

// under puts the key in front of each of the joined errors.
func under(key string, err error) []error {
	if err == nil {
		return nil
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for i := range list {
		list[i] = fmt.Errorf("%s: %w", key, list[i])
	}
	return list
}

// network returns the rules; with files, it is only called once.
func (c Config) network() (outbound.Network, error) {
	if c.Network != nil {
		return *c.Network, nil
	}
	return c.Settings.Network()
}
