package httprelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

const userAgent = "millbridge"

// New returns a handler that does what cfg says for each message. It reads the TLS files and does no other I/O.
func New(cfg Config) (handlers.Handler, error) { return newRelay(cfg, time.Now) }

func newRelay(cfg Config, now func() time.Time) (*relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	network, err := cfg.Network()
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	if addr, err := netip.ParseAddr(cfg.BaseURL.Hostname()); err == nil {
		if err := network.Check(addr); err != nil {
			return nil, fmt.Errorf("http: base_url: %w", err)
		}
	}
	r := &relay{
		base:        *cfg.BaseURL,
		auth:        cfg.Auth,
		keyHeader:   http.CanonicalHeaderKey(cfg.IdempotencyHeader),
		timeout:     cmp.Or(cfg.RequestTimeout, DefaultRequestTimeout),
		maxResponse: cmp.Or(cfg.MaxResponse, DefaultMaxResponse),
		transport:   outbound.Transport(network),
		actions:     make(map[string]*action, len(cfg.Actions)),
		now:         now,
		secrets:     cfg.Auth.secrets(),
	}
	r.tokens = &tokens{auth: cfg.Auth, fetch: r.fetch, now: now, turn: make(chan struct{}, 1)}
	for name, value := range cfg.Headers {
		r.headers = append(r.headers, [2]string{http.CanonicalHeaderKey(name), value.Reveal()})
		r.secrets = append(r.secrets, value.Reveal())
	}
	for name, a := range cfg.Actions {
		r.actions[name], _ = a.compile(cfg)
	}
	return r, nil
}

// relay makes requests of messages.
type relay struct {
	base        url.URL
	auth        Auth
	headers     [][2]string
	keyHeader   string
	timeout     time.Duration
	maxResponse int
	transport   http.RoundTripper
	actions     map[string]*action
	tokens      *tokens
	now         func() time.Time
	secrets     []string
}

// String leaves out what is secret.
func (r *relay) String() string {
	return fmt.Sprintf("http %s://%s", r.base.Scheme, r.base.Host)
}

// Format writes String whatever the verb.
func (r *relay) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// Names returns the names of the actions, or of events, that there are.
func (r *relay) Names() []string { return slices.Sorted(maps.Keys(r.actions)) }

// action returns that of a message.
func (r *relay) action(ctx context.Context, env schema.Envelope) (*action, error) {
	if a := r.actions[env.Name]; a != nil {
		return a, nil
	}
	target := env.Target
	if call, ok := handlers.CallFrom(ctx); ok {
		target = call.Handler
	}
	return nil, handlers.Permanent(fmt.Errorf("target %q has no action %q; it has %s", schema.OneLine(target), schema.OneLine(env.Name), strings.Join(r.Names(), ", ")))
}

// Handle makes one attempt.
func (r *relay) Handle(ctx context.Context, env schema.Envelope) error {
	a, err := r.action(ctx, env)
	if err != nil {
		return err
	}
	if err := r.run(ctx, a, env); err != nil {
		return fmt.Errorf("%s: %w", env.Name, err)
	}
	return nil
}

func (r *relay) run(ctx context.Context, a *action, env schema.Envelope) error {
	main, look, err := r.fill(a, env)
	if err != nil {
		return err
	}
	if look != nil {
		found, err := r.lookUp(ctx, a, look)
		if found || err != nil {
			return err
		}
	}
	res, body, err := r.send(ctx, main)
	if err != nil {
		return err
	}
	return r.judge(ctx, a, res, body)
}

// Preview says what would be sent.
func (r *relay) Preview(ctx context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	a, err := r.action(ctx, env)
	if err != nil {
		return nil, err
	}
	main, look, err := r.fill(a, env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", env.Name, err)
	}
	if look == nil {
		return []handlers.Preview{r.preview(main, "")}, nil
	}
	return []handlers.Preview{r.preview(&look.filled, ""), r.preview(main, "the look-up finds nothing")}, nil
}

// filled is a request with a message's fields, but without secrets.
type filled struct {
	method string
	url    string
	header http.Header
	body   []byte
	key    string // for the header that carries it; the look-up has none
}

// filledLookUp is a look-up with a message's fields.
type filledLookUp struct {
	filled
	found []Check
}

// fill makes the requests of a message. Its errors are permanent.
func (r *relay) fill(a *action, env schema.Envelope) (main *filled, look *filledLookUp, err error) {
	m := fields.Of(env)
	if main, err = r.fillRequest(a.request, m); err != nil {
		return nil, nil, handlers.Permanent(err)
	}
	main.key = schema.CloudEvent(env)[schema.HeaderKey]
	main.trace(env)
	if a.lookup == nil {
		return main, nil, nil
	}
	plain, err := r.fillRequest(*a.lookup, m)
	if err != nil {
		return nil, nil, handlers.Permanent(fmt.Errorf("look-up: %w", err))
	}
	plain.trace(env)
	look = &filledLookUp{filled: *plain}
	for i, check := range a.Lookup.Found {
		if check, err = check.bind(m); err != nil {
			return nil, nil, handlers.Permanent(fmt.Errorf("look-up: found.%d: %w", i, err))
		}
		look.found = append(look.found, check)
	}
	return main, look, nil
}

func (r *relay) fillRequest(q request, m *fields.Message) (*filled, error) {
	path, err := q.path.Render(m)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	f := &filled{method: q.method, header: http.Header{}}
	f.url = r.base.Scheme + "://" + r.base.Host + strings.TrimSuffix(r.base.EscapedPath(), "/") + path
	for i, p := range q.query {
		value, err := p.text.Render(m)
		if err != nil {
			return nil, fmt.Errorf("query: %s: %w", schema.OneLine(p.name), err)
		}
		f.url += []string{"?", "&"}[min(i, 1)] + escape(p.name) + "=" + escape(value)
	}
	for _, h := range q.headers {
		value, err := h.text.Render(m)
		if err != nil {
			return nil, fmt.Errorf("headers: %s: %w", h.name, err)
		}
		f.header.Set(h.name, value)
	}
	if q.body == nil {
		return f, nil
	}
	f.header.Set("Content-Type", q.body.contentType)
	f.body, err = q.body.render(m)
	return f, err
}

// escape is for both sides of a parameter. A blank becomes %20, which everybody takes for one; "+" is one only in forms.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// trace passes the message's trace on.
func (f *filled) trace(env schema.Envelope) {
	for name, value := range map[string]string{schema.HeaderTraceParent: env.TraceParent, schema.HeaderTraceState: env.TraceState} {
		if value != "" && isHeaderValue(value) { // messages of foreign publishers may have anything there
			f.header.Set(name, value)
		}
	}
}

// head returns the headers of a request. With masked, secrets are not in it.
func (r *relay) head(f *filled, authorization string, masked bool) http.Header {
	h := f.header.Clone()
	add := func(name, value string) {
		if h.Get(name) == "" { // or what the action says counts
			h.Set(name, value)
		}
	}
	for _, own := range r.headers {
		if masked {
			own[1] = mask
		}
		add(own[0], own[1])
	}
	add("User-Agent", userAgent)
	add("Accept", "application/json")
	if f.key != "" && r.keyHeader != "" {
		h.Set(r.keyHeader, f.key)
	}
	if name := r.auth.header(); name != "" {
		h.Set(name, authorization)
	}
	return h
}

func (r *relay) preview(f *filled, when string) handlers.Preview {
	p := handlers.Preview{Do: f.method + " " + f.url, When: when, Header: map[string]string{}, Body: string(f.body)}
	for name, values := range r.head(f, r.auth.masked(), true) {
		p.Header[name] = strings.Join(values, ", ")
	}
	return p
}

var errNoAnswer = errors.New("no complete answer")
