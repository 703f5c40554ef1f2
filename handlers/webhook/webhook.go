package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// New returns a handler that posts messages as cfg says. It does no I/O.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	u, _ := cfg.endpoint()
	e := &endpoint{
		name:          cfg.String(),
		url:           u.String(),
		headers:       http.Header{"User-Agent": {"millbridge"}},
		timeout:       cmp.Or(cfg.Timeout, DefaultTimeout),
		maxResponse:   cmp.Or(cfg.MaxResponse, DefaultMaxResponse),
		retryAfterMax: cmp.Or(cfg.RetryAfterMax, DefaultRetryAfterMax),
		transport:     outbound.Transport(cfg.Network),
		log:           cfg.Logger,
		now:           cfg.Now,
	}
	for _, s := range cfg.Secrets {
		key, err := parseSecret(s)
		if err != nil {
			return nil, fmt.Errorf("webhook: %w", err)
		}
		e.keys = append(e.keys, key)
	}
	for name, value := range cfg.Headers {
		e.headers.Set(name, value)
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
	name          string // without secrets
	url           string
	keys          [][]byte
	headers       http.Header
	timeout       time.Duration
	maxResponse   int64
	retryAfterMax time.Duration
	transport     http.RoundTripper
	log           *slog.Logger
	now           func() time.Time
}

// String leaves out what is secret.
func (e *endpoint) String() string { return e.name }

// Format writes String whatever the verb.
func (e *endpoint) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.name) }

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
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, e.url, bytes.NewReader(env.Payload))
	if err != nil {
		return 0, handlers.Permanent(fmt.Errorf("make the request: %w", err))
	}
	req.GetBody = nil // or the transport sends a second time by itself when the answer does not come
	req.Header = e.header(env, now)
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

// header returns the headers of one attempt.
func (e *endpoint) header(env schema.Envelope, now time.Time) http.Header {
	h := e.headers.Clone()
	id := env.ID
	if env.Replay != nil {
		id = env.Replay.Of
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	if len(e.keys) > 0 {
		signatures := make([]string, len(e.keys))
		for i, key := range e.keys {
			signatures[i] = signature(key, id, stamp, env.Payload)
		}
		h.Set(HeaderSignature, strings.Join(signatures, " "))
	}
	for name, value := range schema.CloudEvent(env) {
		switch name {
		case schema.HeaderContentType: // the binding for HTTP has it in Content-Type
		case schema.HeaderKey:
			h.Set("Idempotency-Key", value)
			fallthrough
		default:
			h.Set(name, value)
		}
	}
	h.Set("Content-Type", "application/octet-stream")
	for name, value := range map[string]string{
		"Content-Type": env.ContentType, schema.HeaderTraceParent: env.TraceParent, schema.HeaderTraceState: env.TraceState,
	} {
		if value != "" && isHeaderValue(value) { // messages of foreign publishers may have anything there
			h.Set(name, value)
		}
	}
	return h
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
