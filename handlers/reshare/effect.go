package reshare

import (
	"encoding/json"
	"slices"
	"strings"
)

// effect is how a request shows that an action was done.
type effect struct {
	reaches  []string // states, or steps as FROM>TO
	says     []string // what stands in the history then; one of them
	unlisted bool     // mod-rs takes it, or refuses it, whether it lists it as valid or not
}

// effects has the actions of mod-rs's own state models whose success can be told from everything else.
var effects = map[string]effect{
	"requesterCancel":                    {reaches: []string{"REQ_CANCEL_PENDING", "REQ_CANCELLED"}},
	"requesterReceived":                  {reaches: []string{"REQ_CHECKED_IN"}},
	"requesterManualCheckIn":             {reaches: []string{"REQ_CHECKED_IN"}},
	"requesterAgreeConditions":           {reaches: []string{"REQ_CONDITIONAL_ANSWER_RECEIVED>REQ_EXPECTS_TO_SUPPLY"}},
	"requesterRejectConditions":          {reaches: []string{"REQ_CONDITIONAL_ANSWER_RECEIVED>REQ_CANCEL_PENDING"}},
	"requesterMarkEndOfRotaReviewed":     {reaches: []string{"REQ_END_OF_ROTA_REVIEWED"}},
	"patronReturnedItem":                 {reaches: []string{"REQ_AWAITING_RETURN_SHIPPING"}},
	"shippedReturn":                      {reaches: []string{"REQ_SHIPPED_TO_SUPPLIER"}},
	"patronReturnedItemAndShippedReturn": {reaches: []string{"REQ_SHIPPED_TO_SUPPLIER"}},
	"cancelLocal":                        {reaches: []string{"REQ_CANCELLED"}},
	"fillLocally":                        {reaches: []string{"REQ_FILLED_LOCALLY"}},
	"requesterCompleteRequest":           {reaches: []string{"REQ_REQUEST_COMPLETE"}},
	"localSupplierCannotSupply":          {reaches: []string{"REQ_LOCAL_REVIEW>REQ_UNFILLED", "REQ_LOCAL_REVIEW>REQ_REQUEST_SENT_TO_SUPPLIER"}},

	"respondYes":                                     {reaches: []string{"RES_NEW_AWAIT_PULL_SLIP"}},
	"supplierCannotSupply":                           {reaches: []string{"RES_UNFILLED"}},
	"supplierPrintPullSlip":                          {reaches: []string{"RES_AWAIT_PICKING"}},
	"supplierCheckInToReshare":                       {reaches: []string{"RES_AWAIT_SHIP", "RES_SEQUESTERED"}},
	"supplierMarkShipped":                            {reaches: []string{"RES_ITEM_SHIPPED"}},
	"supplierCheckOutOfReshare":                      {reaches: []string{"RES_COMPLETE"}},
	"supplierAddURLToDocument":                       {reaches: []string{"RES_DOCUMENT_DELIVERED"}},
	"supplierFillDigitalLoan":                        {reaches: []string{"RES_LOANED_DIGITALLY"}},
	"supplierCheckInToReshareAndSupplierMarkShipped": {reaches: []string{"RES_ITEM_SHIPPED"}},
	"supplierConditionalSupply": {says: []string{
		"Request responded to conditionally, request continuing", "Request responded to conditionally, placed in hold state",
	}},

	// They set something to a value: to do it again changes nothing.
	"edit":            {unlisted: true},
	"localNote":       {unlisted: true},
	"messageSeen":     {unlisted: true},
	"messagesAllSeen": {unlisted: true},
}

// effect returns how the request shows that the action was done; ok is false if it does not.
func (a PerformArgs) effect() (e effect, ok bool) {
	switch {
	case a.Repeatable:
		return effect{unlisted: true}, true
	case len(a.Reaches) > 0:
		return effect{reaches: a.Reaches}, true
	}
	var params struct {
		Note           string `json:"note"`
		TerminalState  string `json:"terminalState"`
		CancelResponse string `json:"cancelResponse"`
	}
	_ = json.Unmarshal(a.ActionParams, &params) // other types are mod-rs's to refuse
	switch a.Action {
	case "message":
		return effect{says: []string{"Message sent: " + params.Note}, unlisted: true}, true
	case "manualClose":
		return effect{reaches: []string{params.TerminalState}}, params.TerminalState != ""
	case "supplierRespondToCancel":
		if params.CancelResponse == "no" {
			return effect{says: []string{"Cancellation denied"}}, true
		}
		return effect{reaches: []string{"RES_CANCELLED"}}, params.CancelResponse == "yes"
	}
	e, ok = effects[a.Action]
	return e, ok
}

// shows reports whether the request has the action behind it whatever is valid now: it is in the state, or the text was
// sent.
func (e effect) shows(r record) bool {
	return slices.Contains(e.reaches, string(r.State)) || e.unlisted && e.isPast(r)
}

// isPast reports whether the request's history has the action's step. An action that is valid may have become so again, by
// an undo or a new question of the other library: then that says nothing.
func (e effect) isPast(r record) bool {
	return slices.ContainsFunc(r.Audit, func(a audit) bool {
		return slices.Contains(e.says, string(a.Message)) || a.FromStatus != a.ToStatus &&
			(slices.Contains(e.reaches, string(a.ToStatus)) || slices.Contains(e.reaches, string(a.FromStatus+">"+a.ToStatus)))
	})
}

// String says what would show it.
func (e effect) String() string {
	return strings.Join(append(e.reaches[:len(e.reaches):len(e.reaches)], e.says...), " or ")
}
