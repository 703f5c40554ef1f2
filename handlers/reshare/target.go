package reshare

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// The actions.
const (
	ActionCreate  = "create-request" // args [CreateArgs], answer [Created]
	ActionPerform = "perform-action" // args [PerformArgs], answer [Performed]
	ActionGet     = "get-request"    // args [GetArgs], answer [Got]
	ActionList    = "list-requests"  // args [ListArgs], answer [Listed]
)

// New returns the handler of a target. It does no I/O but for reading certificates. The handler is also a
// [handlers.Previewer].
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reshare: %w", err)
	}
	c, err := newClient(cfg, time.Now)
	if err != nil {
		return nil, fmt.Errorf("reshare: %w", err)
	}
	t := &target{client: c}
	on(t, ActionCreate, CreateArgs.plan, c.create)
	on(t, ActionPerform, PerformArgs.plan, c.perform)
	on(t, ActionGet, GetArgs.plan, c.get)
	on(t, ActionList, ListArgs.plan, c.list)
	return t, nil
}

// target runs jobs, and plans what it would do for them.
type target struct {
	client  *client
	actions handlers.Actions
	plans   handlers.Actions
}

// on gives an action its plan, which checks the arguments and knows every request, and what makes the requests.
func on[T any](
	t *target, action string, plan func(T, string) ([]call, error), run func(context.Context, *session, T, []call) error,
) {
	handlers.On(&t.actions, action, func(ctx context.Context, args T, key string) error {
		calls, err := plan(args, key)
		if err != nil {
			return err
		}
		return run(ctx, ctx.Value(sessionKey{}).(*session), args, calls)
	})
	handlers.On(&t.plans, action, func(ctx context.Context, args T, key string) (err error) {
		*ctx.Value(planKey{}).(*[]call), err = plan(args, key)
		return err
	})
}

type (
	sessionKey struct{} // *session, for runs
	planKey    struct{} // *[]call, for plans
)

// Handle runs a job for its tenant.
func (t *target) Handle(ctx context.Context, env schema.Envelope) error {
	s, err := t.client.session(env.Tenant)
	if err != nil {
		return err
	}
	return t.actions.Handle(context.WithValue(ctx, sessionKey{}, s), env)
}

// Preview shows the requests that a job would make.
func (t *target) Preview(ctx context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	s, err := t.client.session(env.Tenant)
	if err != nil {
		return nil, err
	}
	var calls []call
	if err := t.plans.Handle(context.WithValue(ctx, planKey{}, &calls), env); err != nil {
		return nil, err
	}
	login := s.loginCall(pathLogin, false)
	login.when = "there is no token, or it is about to end"
	shown := make([]handlers.Preview, 0, len(calls)+1)
	for i, call := range append([]call{login}, calls...) {
		token := "***"
		if i == 0 {
			token = ""
		}
		req, err := t.client.request(ctx, s, call, token)
		if err != nil {
			return nil, err
		}
		p := handlers.Preview{
			Do: req.Method + " " + strings.ReplaceAll(req.URL.String(), "%7Bid%7D", unknownID), When: call.when,
			Header: map[string]string{}, Body: string(call.body),
		}
		for name := range req.Header {
			p.Header[name] = req.Header.Get(name)
		}
		shown = append(shown, p)
	}
	return shown, nil
}

// Names returns the actions' names in order.
func (t *target) Names() []string { return t.actions.Names() }

// Validate reports what is wrong with the actions.
func (t *target) Validate() error { return t.actions.Validate() }

// String leaves out what is secret.
func (t *target) String() string {
	return fmt.Sprintf("reshare %s://%s", t.client.config.BaseURL.Scheme, t.client.config.BaseURL.Host)
}
