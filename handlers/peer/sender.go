package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// HeaderFrom is the header with the name of the bridge that sends.
const HeaderFrom = "Millbridge-From"

// keysWait is the wait before a message is sent again that was refused because of keys or clocks.
const keysWait = 5 * time.Minute

// Stored is what the receiver answers, and the target reports.
type Stored struct {
	ID        string `json:"id"`                  // of the message, the same on both sides
	Duplicate bool   `json:"duplicate,omitempty"` // it was stored before
}

// New returns a handler that sends messages to another Millbridge. It reads the settings' files and does no other I/O.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	network, err := cfg.Network()
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	return &sender{url: cfg.URL.String(), cfg: cfg, transport: outbound.Transport(network)}, nil
}

type sender struct {
	url       string
	cfg       Config
	transport http.RoundTripper
}

// String leaves the path out.
func (s *sender) String() string { return "peer " + s.cfg.URL.Scheme + "://" + s.cfg.URL.Host }

// Handle sends the message and waits until the other side has stored it.
func (s *sender) Handle(ctx context.Context, env schema.Envelope) error {
	stored, err := s.send(ctx, env)
	if err != nil {
		return fmt.Errorf("send to peer: %w", err)
	}
	return handlers.Report(ctx, stored)
}

func (s *sender) send(ctx context.Context, env schema.Envelope) (Stored, error) {
	req, _, err := s.request(ctx, env, time.Now())
	if err != nil {
		return Stored{}, err
	}
	res, err := s.transport.RoundTrip(req) // not through http.Client: it would put the whole URL into its errors
	if err != nil {
		var refused *outbound.AddressError
		switch {
		case ctx.Err() != nil:
			return Stored{}, context.Cause(ctx)
		case errors.As(err, &refused):
			return Stored{}, handlers.Permanent(refused)
		}
		return Stored{}, schema.WithKind(schema.Temporary, err)
	}
	body, err := outbound.Read(res)
	switch {
	case ctx.Err() != nil:
		return Stored{}, context.Cause(ctx)
	case err != nil && res.StatusCode == http.StatusUnauthorized:
		return Stored{}, handlers.RetryAfter(explained(err, body), keysWait)
	case err != nil:
		return Stored{}, explained(err, body)
	}
	var stored Stored
	if err := json.Unmarshal(body, &stored); err != nil || stored.ID != req.Header.Get(webhook.HeaderID) {
		// Some other program has answered. The message may be sent again: the receiver knows it by its id.
		return Stored{}, schema.WithKind(schema.Temporary, errors.New("the answer is not that of a Millbridge"))
	}
	return stored, nil
}

// explained adds the reason that a receiver gives in the first line of its answer.
func explained(err error, body []byte) error {
	const longest = 200
	line, _, _ := strings.Cut(string(body[:min(len(body), longest)]), "\n")
	line = schema.OneLine(strings.ToValidUTF8(line, ""))
	if line == "" || strings.HasPrefix(line, "<") { // a page of some other program
		return err
	}
	return fmt.Errorf("%w: %s", err, line)
}

// request makes the request of one attempt.
func (s *sender) request(ctx context.Context, env schema.Envelope, now time.Time) (*http.Request, []byte, error) {
	env, err := env.PassOn(s.cfg.Origin)
	if err != nil {
		return nil, nil, err
	}
	if env.Kind == schema.KindJob {
		env.Target = cmp.Or(s.cfg.Target, env.Target)
	}
	body := Encode(env)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, handlers.Permanent(errors.New("the request cannot be made"))
	}
	signatures := make([]string, len(s.cfg.Secrets))
	for i, secret := range s.cfg.Secrets {
		if signatures[i], err = webhook.Sign(secret.Reveal(), env.ID, now, body); err != nil {
			return nil, nil, handlers.Permanent(err)
		}
	}
	for name, value := range map[string]string{
		"User-Agent": "millbridge", "Content-Type": ContentType, HeaderFrom: s.cfg.Origin,
		webhook.HeaderID: env.ID, webhook.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10), webhook.HeaderSignature: strings.Join(signatures, " "),
	} {
		req.Header.Set(name, value)
	}
	return req, body, nil
}

// Preview returns the request that Handle would make, without signature.
func (s *sender) Preview(ctx context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	req, body, err := s.request(ctx, env, time.Now())
	if err != nil {
		return nil, fmt.Errorf("send to peer: %w", err)
	}
	p := handlers.Preview{Do: "POST " + s.url, Header: make(map[string]string, len(req.Header)), Body: string(body)}
	for name := range req.Header {
		p.Header[name] = req.Header.Get(name)
	}
	p.Header[webhook.HeaderSignature] = configgroup.NewSecret(p.Header[webhook.HeaderSignature]).String()
	return []handlers.Preview{p}, nil
}
