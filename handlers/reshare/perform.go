package reshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// PerformArgs are an action on a request, in mod-rs's own words.
type PerformArgs struct {
	Which
	Action       string          `json:"action"`                 // as requesterReceived
	ActionParams json.RawMessage `json:"actionParams,omitempty"` // an object
	// Reaches are the states that prove that the action was done, each as REQ_CHECKED_IN, or with the state before it as
	// REQ_SHIPPED>REQ_CHECKED_IN where other ways lead there, too. It is needed for actions that this package does not know,
	// and replaces what it knows of others.
	Reaches []string `json:"reaches,omitempty"`
	// Repeatable says that it does no harm if the action is performed again. It is for actions whose success leaves no
	// state that proves it.
	Repeatable bool `json:"repeatable,omitempty"`
}

// Performed answers perform-action: the request as it is afterwards.
type Performed struct {
	Request
	Action      string `json:"action"`
	AlreadyDone bool   `json:"alreadyDone"` // nothing was done now: it had been done before
}

func (a PerformArgs) plan(string) ([]call, error) {
	calls, path, err := a.Which.plan()
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	params := a.ActionParams
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	if params[0] != '{' {
		errs = append(errs, errors.New("actionParams: are no object"))
	}
	switch _, known := a.effect(); {
	case a.Action == "" || schema.OneLine(a.Action) != a.Action || len(a.Action) > 100:
		errs = append(errs, errors.New("action: is missing, or no action"))
	case slices.ContainsFunc(a.Reaches, func(s string) bool { return s == "" || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_>") != "" }):
		errs = append(errs, errors.New("reaches: want states as REQ_CHECKED_IN, or steps as REQ_SHIPPED>REQ_CHECKED_IN"))
	case !known:
		errs = append(errs, fmt.Errorf("action: nothing is known that proves %s to be done: name the states under reaches, or say that it is repeatable", a.Action))
	}
	if len(errs) > 0 {
		return nil, handlers.Permanent(errors.Join(errs...))
	}
	body, err := json.Marshal(struct {
		Action string          `json:"action"`
		Params json.RawMessage `json:"actionParams"`
	}{a.Action, params})
	if err != nil {
		return nil, handlers.Permanent(fmt.Errorf("encode the action: %w", err))
	}
	return append(
		calls,
		call{method: http.MethodGet, path: path},
		call{method: http.MethodGet, path: path + "/validActions", when: "the request does not show that the action was done"},
		call{method: http.MethodPost, path: path + "/performAction", body: body, when: "the action is valid"},
		call{method: http.MethodGet, path: path, when: "the action was performed"},
	), nil
}

// perform runs a perform-action job.
func (c *client) perform(ctx context.Context, s *session, a PerformArgs, calls []call) error {
	id, calls, err := c.resolve(ctx, s, a.Which, calls)
	if err != nil {
		return err
	}
	unlock, err := c.lock(ctx, "request "+s.tenant+" "+id)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.fetch(ctx, s, calls[0])
	if err != nil {
		return err
	}
	e, _ := a.effect()
	done := e.shows(r)
	if !done && !e.unlisted {
		if done, err = c.past(ctx, s, a, e, r, calls[1]); err != nil {
			return err
		}
	}
	if !done {
		if _, err := c.send(ctx, s, calls[2]); err != nil {
			return err
		}
		if r, err = c.fetch(ctx, s, calls[3]); schema.KindOf(err) == schema.Permanent {
			err = schema.WithKind(schema.Temporary, err) // it is done: the next attempt finds that out
		}
		if err != nil {
			return fmt.Errorf("%s is done, but: %w", a.Action, err)
		}
	}
	return handlers.Report(ctx, Performed{r.request(), a.Action, done})
}

// past reports whether the action is behind the request, for one that is not valid now. The error says that it neither is
// nor can be performed.
func (c *client) past(ctx context.Context, s *session, a PerformArgs, e effect, r record, get call) (bool, error) {
	valid, err := c.valid(ctx, s, get)
	switch {
	case err != nil:
		return false, err
	case slices.Contains(valid, a.Action):
		return false, nil
	case e.isPast(r):
		return true, nil
	case r.isBusy():
		return false, fmt.Errorf("request %s waits for its last message to be sent (%s); until then no action is valid", r.ID, r.NetworkStatus) // temporary
	}
	slices.Sort(valid)
	return false, handlers.Permanent(fmt.Errorf("request %s is in state %s, where %s is not valid, and its history does not have %v, so that was not done before; valid are: %s",
		r.ID, schema.OneLine(string(r.State)), a.Action, e, cut(schema.OneLine(strings.Join(valid, ", ")))))
}
