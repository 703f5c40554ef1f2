package ncip

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// The actions of the target.
const (
	ActionLookupUser        = "lookup-user"
	ActionLookupItem        = "lookup-item"
	ActionRequestItem       = "request-item"
	ActionCancelRequestItem = "cancel-request-item"
	ActionAcceptItem        = "accept-item"
	ActionCheckOutItem      = "check-out-item"
	ActionCheckInItem       = "check-in-item"
	ActionRenewItem         = "renew-item"
)

// target is a responder, as seen from here.
type target struct {
	cfg       Config
	transport http.RoundTripper
	timeout   time.Duration
	secrets   []string
	actions   handlers.Actions
}

// shortest is how long a secret must be to be masked in what a responder repeats: headers often hold a plain "1", too.
const shortest = 4

// New returns the handler of a target. It sends nothing.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, handlers.Permanent(err)
	}
	network, err := cfg.Network()
	if err != nil {
		return nil, handlers.Permanent(err)
	}
	cfg.Headers, cfg.Schemes, cfg.LookUps = maps.Clone(cfg.Headers), maps.Clone(cfg.Schemes), slices.Clone(cfg.LookUps)
	t := &target{cfg: cfg, transport: outbound.Transport(network), timeout: cfg.RequestTimeout}
	if t.timeout == 0 {
		t.timeout = outbound.DefaultTimeout
	}
	for _, s := range append([]configgroup.Secret{cfg.FromSystemAuthentication, cfg.FromAgencyAuthentication, cfg.Password}, slices.Collect(maps.Values(cfg.Headers))...) {
		if len(s.Reveal()) >= shortest {
			t.secrets = append(t.secrets, s.Reveal())
		}
	}
	slices.SortFunc(t.secrets, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	on(t, ActionLookupUser, t.lookupUser)
	on(t, ActionLookupItem, t.lookupItem)
	on(t, ActionRequestItem, t.requestItem)
	on(t, ActionCancelRequestItem, t.cancelRequestItem)
	on(t, ActionAcceptItem, t.acceptItem)
	on(t, ActionCheckOutItem, t.checkOutItem)
	on(t, ActionCheckInItem, t.checkInItem)
	on(t, ActionRenewItem, t.renewItem)
	return t, t.actions.Validate()
}

// on gives an action the function that plans it. Runs and previews go through the same plan.
func on[T any](t *target, action string, planned func(args T, requestID string) (plan, error)) {
	handlers.On(&t.actions, action, func(ctx context.Context, args T, _ string) error {
		r, _ := ctx.Value(runKey{}).(*run)
		p, err := planned(args, r.requestID)
		if err != nil {
			return handlers.Permanent(fmt.Errorf("args of %s: %w", action, err))
		}
		if r.preview != nil {
			return t.show(p, r.preview)
		}
		return t.run(ctx, p)
	})
}

type runKey struct{}

// run is what a plan knows of its message.
type run struct {
	requestID string
	preview   *[]handlers.Preview
}

// String leaves out what is secret.
func (t *target) String() string { return t.cfg.String() }

// Format writes String whatever the verb.
func (t *target) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// Names returns the actions.
func (t *target) Names() []string { return t.actions.Names() }

// Handle does what a job asks for.
func (t *target) Handle(ctx context.Context, env schema.Envelope) error {
	return t.actions.Handle(context.WithValue(ctx, runKey{}, &run{requestID: RequestID(env)}), env)
}

// Preview returns the messages of a job. Each look-up is asked only until one of them shows that nothing is left to do.
func (t *target) Preview(ctx context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	var list []handlers.Preview
	err := t.actions.Handle(context.WithValue(ctx, runKey{}, &run{RequestID(env), &list}), env)
	return list, err
}

// message is one that is sent: a service with what it asks for.
type message struct {
	service string
	body    []element
}

// request makes a message's request. That of a preview has its secrets masked.
func (t *target) request(ctx context.Context, m message, preview bool) (*http.Request, []byte, error) {
	c := t.cfg
	reveal := configgroup.Secret.Reveal
	if preview {
		reveal = configgroup.Secret.String
	}
	header := group("InitiationHeader",
		text("FromSystemId", c.FromSystemID),
		text("FromSystemAuthentication", reveal(c.FromSystemAuthentication)),
		group("FromAgencyId", text("AgencyId", c.FromAgency)),
		text("FromAgencyAuthentication", reveal(c.FromAgencyAuthentication)),
		group("ToAgencyId", text("AgencyId", c.ToAgency)),
		text("ApplicationProfileType", c.ApplicationProfileType),
	)
	body, err := document(group(m.service, append([]element{header}, m.body...)...), c.Schemes)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, handlers.Permanent(errors.New("the request cannot be made"))
	}
	req.GetBody = nil // or the transport sends a second time by itself when the answer does not come
	req.Header.Set("Accept", "application/xml")
	for name, value := range c.Headers {
		req.Header.Set(name, reveal(value))
	}
	if c.Username != "" {
		credentials := configgroup.NewSecret(base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password.Reveal())))
		req.Header.Set("Authorization", "Basic "+reveal(credentials))
	}
	req.Header.Set("Content-Type", "application/xml; charset=utf-8")
	return req, body, nil
}

// exchange sends a message and returns the service's part of the answer.
func (t *target) exchange(ctx context.Context, m message) (*node, error) {
	attempt, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	req, _, err := t.request(attempt, m, false)
	if err != nil {
		return nil, err
	}
	// Not through http.Client: it would follow redirects and put the whole URL into its errors.
	res, err := t.transport.RoundTrip(req)
	if err != nil {
		return nil, t.failed(ctx, attempt, m, err)
	}
	body, err := outbound.Read(res)
	if err != nil {
		var status *outbound.StatusError
		if !errors.As(err, &status) && schema.KindOf(err) != schema.Permanent {
			return nil, t.failed(ctx, attempt, m, err)
		}
		return nil, fmt.Errorf("%s: %w", m.service, err)
	}
	answer, err := t.read(res.Header, body, m.service)
	if err != nil {
		var problems *ProblemError
		if errors.As(err, &problems) {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", m.service, err)
	}
	return answer, nil
}

// read takes an answer apart.
func (t *target) read(header http.Header, body []byte, service string) (*node, error) {
	if enc := header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, handlers.Permanent(errors.New("the answer is compressed, which was not asked for"))
	}
	if _, params, err := mime.ParseMediaType(header.Get("Content-Type")); err == nil {
		if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
			return nil, handlers.Permanent(errors.New("the answer is not in UTF-8"))
		}
	}
	root, err := decode(body)
	if err != nil {
		return nil, err
	}
	if list := problemsOf(root, t.mask); len(list) > 0 {
		return nil, (&ProblemError{service, list}).kind()
	}
	answer := root.child(service + "Response")
	if answer == nil {
		return nil, handlers.Permanent(fmt.Errorf("the answer has no %sResponse", service))
	}
	for _, c := range answer.children {
		if c.name != "ResponseHeader" && c.name != "Ext" {
			return answer, nil
		}
	}
	return nil, handlers.Permanent(errors.New("the answer has neither data nor a problem"))
}

// mask keeps secrets out of what a responder repeats.
func (t *target) mask(s string) string { return configgroup.Mask(s, t.secrets...) }

// failed gives the error of an attempt without an answer its kind.
func (t *target) failed(ctx, attempt context.Context, m message, err error) error {
	var refused *outbound.AddressError
	switch {
	case ctx.Err() != nil: // not our deadline: whoever ended the run knows what it means
		return fmt.Errorf("%s: %w", m.service, context.Cause(ctx))
	case errors.As(err, &refused):
		return handlers.Permanent(fmt.Errorf("%s: %w", m.service, refused))
	case attempt.Err() != nil:
		return schema.WithKind(schema.Temporary, fmt.Errorf("%s: no complete answer within %v", m.service, t.timeout))
	}
	return schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w", m.service, err))
}
