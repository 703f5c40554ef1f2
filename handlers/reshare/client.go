package reshare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

const (
	headerTenant = "X-Okapi-Tenant"
	headerToken  = "X-Okapi-Token"
)

// call is a request that is to be made, or shown.
type call struct {
	method string
	path   string
	query  url.Values
	body   []byte
	when   string // under which condition, for previews
}

// at returns the call for the request with this id.
func (c call) at(id string) call {
	c.path = strings.Replace(c.path, unknownID, id, 1)
	return c
}

// client calls the gateway.
type client struct {
	config Config
	http   *http.Client
	now    func() time.Time

	mu       sync.Mutex
	sessions map[string]*session
	held     map[string]chan struct{}
}

func newClient(cfg Config, now func() time.Time) (*client, error) {
	network, err := cfg.Network()
	if err != nil {
		return nil, err
	}
	return &client{
		config: cfg, http: outbound.Client(network, cfg.RequestTimeout), now: now,
		sessions: map[string]*session{}, held: map[string]chan struct{}{},
	}, nil
}

// session returns the one session of a message's tenant.
func (c *client) session(tenant string) (*session, error) {
	name, credentials, err := c.config.credentials(tenant)
	if err != nil {
		return nil, handlers.Permanent(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[name]
	if s == nil {
		s = &session{tenant: name, credentials: credentials, client: c}
		c.sessions[name] = s
	}
	return s, nil
}

// lock keeps two runs of this process from looking and acting at the same time.
func (c *client) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		c.mu.Lock()
		busy := c.held[name]
		if busy == nil {
			mine := make(chan struct{})
			c.held[name] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.held, name)
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another run of the same: %w", context.Cause(ctx))
		}
	}
}

// request builds what a call sends. A login has no token.
func (c *client) request(ctx context.Context, s *session, call call, token string) (*http.Request, error) {
	u := c.config.BaseURL.JoinPath(call.path)
	u.RawQuery = call.query.Encode()
	req, err := http.NewRequestWithContext(ctx, call.method, u.String(), bytes.NewReader(call.body))
	if err != nil {
		return nil, handlers.Permanent(fmt.Errorf("%s %s: cannot be requested", call.method, call.path))
	}
	req.Header.Set("User-Agent", "millbridge")
	req.Header.Set("Accept", "application/json, text/plain")
	req.Header.Set(headerTenant, s.tenant)
	if token != "" {
		req.Header.Set(headerToken, token)
	}
	if call.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// send makes a call with the session's token and returns the body of its answer. If the token is refused, it is renewed
// and the call made once more: the gateway refuses before it passes anything on.
func (c *client) send(ctx context.Context, s *session, call call) ([]byte, error) {
	token := ""
	for again := false; ; again = true {
		var err error
		if token, err = s.use(ctx, token); err != nil {
			return nil, err
		}
		res, body, err := c.exchange(ctx, s, call, token)
		switch {
		case res == nil || res.StatusCode != http.StatusUnauthorized:
			return body, err
		case again:
			return nil, s.refuse(token, &refusedError{s.tenant, err})
		}
	}
}

// exchange makes one request. The response is nil if there was no answer; its body has been read and closed.
func (c *client) exchange(ctx context.Context, s *session, call call, token string) (*http.Response, []byte, error) {
	req, err := c.request(ctx, s, call, token)
	if err != nil {
		return nil, nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, c.failed(ctx, call, err)
	}
	body, err := outbound.Read(res)
	if err != nil {
		said := explain(res.Header.Get("Content-Type"), body)
		said.mask(append(s.credentials.written(), token)...)
		return res, body, said.judge(res.StatusCode, fmt.Errorf("%s %s: %w", call.method, call.path, c.broken(ctx, err)))
	}
	return res, body, nil
}

// failed is the error of a request without an answer. It leaves the URL out: its query may name a patron.
func (c *client) failed(ctx context.Context, call call, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	err = c.broken(ctx, err)
	if ctx.Err() == nil && !isAddress(err) {
		err = schema.WithKind(schema.Temporary, err)
	}
	return fmt.Errorf("%s %s: %w", call.method, call.path, err)
}

// broken returns why ctx has ended, if it has: whoever ended it knows what that means. It says in words that our own time is
// up.
func (c *client) broken(ctx context.Context, err error) error {
	var answered *outbound.StatusError
	var slow net.Error
	switch {
	case errors.As(err, &answered):
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &slow) && slow.Timeout():
		return schema.WithKind(schema.Temporary, fmt.Errorf("no complete answer within %v", c.http.Timeout))
	}
	return err
}
