package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// New returns a handler that posts messages as cfg says; it is a [handlers.Previewer], too. It reads the files that cfg
// names and does no other I/O.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	network, err := cfg.network()
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	u, _ := cfg.endpoint()
	headers, _ := cfg.headers()
	e := &endpoint{
		url:           u,
		format:        cfg.Format,
		headers:       headers,
		timeout:       cmp.Or(cfg.Timeout, DefaultTimeout),
		maxResponse:   cmp.Or(cfg.MaxResponseBytes, DefaultMaxResponseBytes),
		retryAfterMax: cmp.Or(cfg.RetryAfterMax, DefaultRetryAfterMax),
		transport:     outbound.Transport(network),
		log:           cfg.Logger,
		now:           cfg.Now,
	}
	for _, s := range cfg.Secrets {
		sign, err := parseSigner(s.Reveal())
		if err != nil {
			return nil, fmt.Errorf("webhook: secrets: %w", err)
		}
		e.signers = append(e.signers, sign)
	}
	if cfg.Payload != "" {
		if e.payload, err = fields.Parse(cfg.Payload, fields.JSON); err != nil {
			return nil, fmt.Errorf("webhook: payload: %w", err)
		}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.now == nil {
		e.now = time.Now
	}
	return e, nil
}

// endpoint posts messages to one URL.
type endpoint struct {
	url           *url.URL
	format        Format
	payload       *fields.Template // nil: the message's own
	headers       map[string]*fields.Template
	signers       []signer
	timeout       time.Duration
	maxResponse   int64
	retryAfterMax time.Duration
	transport     http.RoundTripper
	log           *slog.Logger
	now           func() time.Time
}

// String leaves out what is secret.
func (e *endpoint) String() string { return "webhook " + hostOf(e.url) }

// Format writes String whatever the verb.
func (e *endpoint) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.String()) }

// Handle makes one attempt.
func (e *endpoint) Handle(ctx context.Context, env schema.Envelope) error {
	start := e.now()
	status, err := e.post(ctx, env, start)
	e.log.DebugContext(ctx, "webhook attempt", "target", env.Target, "id", env.ID, "status", status, "elapsed", e.now().Sub(start), "error", err)
	return err
}

func (e *endpoint) post(ctx context.Context, env schema.Envelope, now time.Time) (status int, err error) {
	attempt, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	out, err := e.make(env, now)
	if err != nil {
		return 0, err
	}
	req, err := out.request(attempt)
	if err != nil {
		return 0, handlers.Permanent(fmt.Errorf("make the request: %w", err))
	}
	// Not through http.Client: it would follow redirects and put the whole URL into its errors.
	res, err := e.transport.RoundTrip(req)
	if err != nil {
		return 0, e.failed(ctx, attempt, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is the bare connection, which no deadline ends
		return res.StatusCode, e.verdict(res)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, e.maxResponse)); err != nil && res.StatusCode/100 == 2 {
		return res.StatusCode, e.failed(ctx, attempt, fmt.Errorf("answered %d, but the answer broke off: %w", res.StatusCode, err))
	}
	return res.StatusCode, e.verdict(res)
}

// failed gives the error of an attempt without an answer its kind.
func (e *endpoint) failed(ctx, attempt context.Context, err error) error {
	var refused *outbound.AddressError
	switch {
	case ctx.Err() != nil: // not our deadline: whoever ended the run knows what it means
		return fmt.Errorf("post: %w", context.Cause(ctx))
	case errors.As(err, &refused):
		return handlers.Permanent(fmt.Errorf("post: %w", refused))
	case attempt.Err() != nil:
		return schema.WithKind(schema.Temporary, fmt.Errorf("post: no complete answer within %v", e.timeout))
	}
	return schema.WithKind(schema.Temporary, fmt.Errorf("post: %w", err))
}
