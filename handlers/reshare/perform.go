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
	// Reaches are the states that prove that the action was done. It is needed for actions that this package does not
	// know, and replaces what it knows of others.
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

// effect is how the success of an action can be told.
type effect struct {
	reaches []string // the states it leads to
	says    string   // what it writes into the request's history
	sets    bool     // it sets something to a value: to do it again changes nothing
}

// reaches has the actions of mod-rs's own state models that lead to a state which nothing else is mistaken for.
var reaches = map[string][]string{
	"requesterCancel":                    {"REQ_CANCEL_PENDING", "REQ_CANCELLED"},
	"requesterReceived":                  {"REQ_CHECKED_IN"},
	"requesterManualCheckIn":             {"REQ_CHECKED_IN"},
	"requesterAgreeConditions":           {"REQ_EXPECTS_TO_SUPPLY"},
	"requesterRejectConditions":          {"REQ_CANCEL_PENDING"},
	"requesterMarkEndOfRotaReviewed":     {"REQ_END_OF_ROTA_REVIEWED"},
	"patronReturnedItem":                 {"REQ_AWAITING_RETURN_SHIPPING"},
	"shippedReturn":                      {"REQ_SHIPPED_TO_SUPPLIER"},
	"patronReturnedItemAndShippedReturn": {"REQ_SHIPPED_TO_SUPPLIER"},
	"cancelLocal":                        {"REQ_CANCELLED"},
	"fillLocally":                        {"REQ_FILLED_LOCALLY"},

	"respondYes":                                     {"RES_NEW_AWAIT_PULL_SLIP"},
	"supplierConditionalSupply":                      {"RES_PENDING_CONDITIONAL_ANSWER", "RES_NEW_AWAIT_PULL_SLIP"},
	"supplierCannotSupply":                           {"RES_UNFILLED"},
	"supplierPrintPullSlip":                          {"RES_AWAIT_PICKING"},
	"supplierCheckInToReshare":                       {"RES_AWAIT_SHIP", "RES_SEQUESTERED"},
	"supplierMarkShipped":                            {"RES_ITEM_SHIPPED"},
	"supplierCheckInToReshareAndSupplierMarkShipped": {"RES_ITEM_SHIPPED"},
	"supplierCheckOutOfReshare":                      {"RES_COMPLETE"},
	"supplierFillDigitalLoan":                        {"RES_LOANED_DIGITALLY"},
}

// effect returns how the success of the action can be told; ok is false if it cannot.
func (a PerformArgs) effect() (e effect, ok bool) {
	var params struct {
		Note           *string `json:"note"`
		TerminalState  string  `json:"terminalState"`
		CancelResponse string  `json:"cancelResponse"`
	}
	_ = json.Unmarshal(a.ActionParams, &params) // other types are mod-rs's to refuse
	switch {
	case a.Repeatable:
		return effect{sets: true}, true
	case len(a.Reaches) > 0:
		return effect{reaches: a.Reaches}, true
	case reaches[a.Action] != nil:
		return effect{reaches: reaches[a.Action]}, true
	}
	switch a.Action {
	case "edit", "localNote", "messageSeen", "messagesAllSeen":
		return effect{sets: true}, true
	case "message":
		if params.Note == nil {
			return effect{sets: true}, true // mod-rs refuses it
		}
		return effect{says: "Message sent: " + *params.Note}, true
	case "manualClose":
		return effect{reaches: []string{params.TerminalState}}, params.TerminalState != ""
	case "supplierRespondToCancel":
		return effect{reaches: []string{"RES_CANCELLED"}}, params.CancelResponse == "yes"
	}
	return effect{}, false
}

// isDone reports whether the request shows that the action was done, whoever did it.
func (e effect) isDone(r record) bool {
	if e.says != "" {
		return slices.ContainsFunc(r.Audit, func(a audit) bool { return string(a.Message) == e.says })
	}
	return slices.Contains(e.reaches, string(r.State))
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
	if a.Action == "" || schema.OneLine(a.Action) != a.Action || len(a.Action) > 100 {
		errs = append(errs, errors.New("action: is missing, or no action"))
	} else if _, ok := a.effect(); !ok {
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
	done := e.isDone(r)
	if !done && len(e.reaches) > 0 {
		if done, err = c.past(ctx, s, a, e, r, calls[1]); err != nil {
			return err
		}
	}
	if !done {
		if _, err := c.send(ctx, s, calls[2]); err != nil {
			return err
		}
		if r, err = c.fetch(ctx, s, calls[3]); err != nil {
			return schema.WithKind(schema.Temporary, fmt.Errorf("%s is done, but: %w", a.Action, err))
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
	case r.hasReached(e.reaches):
		return true, nil
	case r.isBusy():
		return false, fmt.Errorf("request %s waits for its last message to be sent (%s); until then no action is valid", r.ID, r.NetworkStatus)
	}
	slices.Sort(valid)
	return false, handlers.Permanent(fmt.Errorf("request %s is in state %s, where %s is not valid, and it has never been in %s, so that was not done before; valid are: %s",
		r.ID, schema.OneLine(string(r.State)), a.Action, strings.Join(e.reaches, " or "), cut(schema.OneLine(strings.Join(valid, ", ")))))
}
