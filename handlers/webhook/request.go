package webhook

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/schema"
)

// An outgoing request is what is sent for a message, and what a preview shows.
type outgoing struct {
	url    *url.URL
	header http.Header
	body   []byte
}

// make returns what is sent at this time. Its error is permanent. To the receiver a replay is one more attempt.
func (e *endpoint) make(env schema.Envelope, now time.Time) (outgoing, error) {
	env = env.First()
	out := outgoing{e.url, http.Header{"User-Agent": {"millbridge"}, "Accept-Encoding": {"identity"}}, nil}
	message := fields.Of(env)
	for name, t := range e.headers {
		value, err := t.Render(message)
		if err != nil {
			return out, fmt.Errorf("header %s: %w", name, err)
		}
		out.header.Set(name, value)
	}
	if e.payload != nil {
		text, err := e.payload.Render(message)
		if err != nil {
			return out, fmt.Errorf("payload: %w", err)
		}
		env.Payload, env.ContentType = []byte(text), "application/json"
	}
	out.body = e.format.write(out.header, env)
	out.header.Set("Idempotency-Key", schema.CloudEvent(env)[schema.HeaderKey])
	for name, value := range map[string]string{schema.HeaderTraceParent: env.TraceParent, schema.HeaderTraceState: env.TraceState} {
		if value != "" && isHeaderValue(value) { // messages of foreign publishers may have anything there
			out.header.Set(name, value)
		}
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	out.header.Set(HeaderID, env.ID)
	out.header.Set(HeaderTimestamp, stamp)
	if len(e.signers) > 0 {
		signed, entries := content(env.ID, stamp, out.body), make([]string, len(e.signers))
		for i, sign := range e.signers {
			entries[i] = sign(signed)
		}
		out.header.Set(HeaderSignature, strings.Join(entries, " "))
	}
	return out, nil
}

func (o outgoing) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url.String(), bytes.NewReader(o.body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // or the transport sends a second time by itself when the answer does not come
	req.Header = o.header
	return req, nil
}

// Preview returns the one request that would be sent, without what is secret: path and query of the URL, signatures, and
// of the configured headers all but the message's fields in them.
func (e *endpoint) Preview(_ context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	if env.Source == "" { // it gets one when it is published
		env.Source = schema.SourceOf("***")
	}
	out, err := e.make(env, e.now())
	if err != nil {
		return nil, err
	}
	shown := handlers.Preview{Do: "POST " + hostOf(out.url), Header: make(map[string]string, len(out.header)), Body: string(out.body)}
	message := fields.Of(env)
	for name := range out.header {
		value := out.header.Get(name)
		if t := e.headers[name]; t != nil {
			if value, err = t.Mask(message); err != nil {
				return nil, err
			}
		}
		if name == HeaderSignature {
			entries := strings.Fields(value)
			for i, entry := range entries {
				version, _, _ := strings.Cut(entry, ",")
				entries[i] = version + ",***"
			}
			value = strings.Join(entries, " ")
		}
		shown.Header[strings.ToLower(name)] = value
	}
	return []handlers.Preview{shown}, nil
}
