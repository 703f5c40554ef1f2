package resharetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// rule is what an action does. peer is the other library's new state, if it has one.
type rule struct {
	from     []string
	to, peer string
}

// The states in which a request is neither finished nor given up.
var (
	requesterActive = []string{
		"REQ_IDLE", "REQ_VALIDATED", "REQ_SUPPLIER_IDENTIFIED", "REQ_REQUEST_SENT_TO_SUPPLIER", "REQ_EXPECTS_TO_SUPPLY", "REQ_SHIPPED",
		"REQ_CHECKED_IN", "REQ_AWAITING_RETURN_SHIPPING", "REQ_SHIPPED_TO_SUPPLIER", "REQ_CANCEL_PENDING",
	}
	responderActive = []string{
		"RES_IDLE", "RES_NEW_AWAIT_PULL_SLIP", "RES_AWAIT_PICKING", "RES_AWAIT_SHIP", "RES_ITEM_SHIPPED", "RES_ITEM_RETURNED",
		"RES_CANCEL_REQUEST_RECEIVED",
	}
)

// rules are mod-rs's AvailableActionData and ActionEventResultData, for the path of a loan.
var rules = map[string]rule{
	"requesterCancel": {
		[]string{
			"REQ_IDLE", "REQ_INVALID_PATRON", "REQ_BLANK_FORM_REVIEW", "REQ_VALIDATED", "REQ_SUPPLIER_IDENTIFIED", "REQ_REQUEST_SENT_TO_SUPPLIER",
			"REQ_EXPECTS_TO_SUPPLY",
		}, "REQ_CANCEL_PENDING", "RES_CANCEL_REQUEST_RECEIVED",
	},
	"requesterReceived":  {[]string{"REQ_SHIPPED"}, "REQ_CHECKED_IN", ""},
	"patronReturnedItem": {[]string{"REQ_CHECKED_IN"}, "REQ_AWAITING_RETURN_SHIPPING", ""},
	"shippedReturn":      {[]string{"REQ_AWAITING_RETURN_SHIPPING"}, "REQ_SHIPPED_TO_SUPPLIER", "RES_ITEM_RETURNED"},

	"respondYes":                {[]string{"RES_IDLE"}, "RES_NEW_AWAIT_PULL_SLIP", "REQ_EXPECTS_TO_SUPPLY"},
	"supplierPrintPullSlip":     {[]string{"RES_NEW_AWAIT_PULL_SLIP"}, "RES_AWAIT_PICKING", ""},
	"supplierCannotSupply":      {[]string{"RES_IDLE", "RES_NEW_AWAIT_PULL_SLIP", "RES_AWAIT_PICKING"}, "RES_UNFILLED", "REQ_UNFILLED"},
	"supplierCheckInToReshare":  {[]string{"RES_AWAIT_PICKING"}, "RES_AWAIT_SHIP", ""},
	"supplierMarkShipped":       {[]string{"RES_AWAIT_SHIP"}, "RES_ITEM_SHIPPED", "REQ_SHIPPED"},
	"supplierCheckOutOfReshare": {[]string{"RES_ITEM_RETURNED"}, "RES_COMPLETE", "REQ_REQUEST_COMPLETE"},
	"supplierRespondToCancel":   {[]string{"RES_CANCEL_REQUEST_RECEIVED"}, "RES_CANCELLED", "REQ_CANCELLED"},

	"message":   {append(requesterActive, responderActive...), "", ""},
	"localNote": {responderActive, "", ""},
}

// valid returns the actions that are offered for the request.
func (r *request) valid() []string {
	list := []string{}
	for action, rule := range rules {
		if !r.busy && slices.Contains(rule.from, r.state) {
			list = append(list, action)
		}
	}
	slices.Sort(list)
	return list
}

// perform answers performAction.
func (s *Server) perform(w http.ResponseWriter, r *http.Request, tenant Tenant, id string) {
	var posted struct {
		Action string         `json:"action"`
		Params map[string]any `json:"actionParams"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&posted); err != nil {
		answer(w, http.StatusInternalServerError, map[string]any{"error": 500, "message": "Could not parse the request"})
		return
	}
	found := s.find(tenant.Name, id)
	if found == nil {
		answer(w, http.StatusBadRequest, map[string]any{"message": "Unable to find request with id: " + id})
		return
	}
	refuse := func(message string) {
		found.audit = append(found.audit, entry{found.state, found.state, message})
		answer(w, http.StatusBadRequest, map[string]any{"message": message})
	}
	rule, known := rules[posted.Action]
	switch {
	case found.busy:
		refuse("Unable to perform action as we are waiting for existing network activity to complete, network status: Waiting, Action being performed: " + posted.Action)
	case !known || !slices.Contains(rule.from, found.state):
		refuse(fmt.Sprintf("A valid action was not supplied, isRequester: %v Current state: %s, network status: null Action being performed: %s",
			found.requester, found.state, posted.Action))
	case posted.Action == "message":
		note, ok := posted.Params["note"].(string)
		if !ok {
			found.audit = append(found.audit, entry{found.state, found.state, "No note supplied to send"})
			answer(w, http.StatusBadRequest, map[string]any{})
			return
		}
		found.notes = append(found.notes, note)
		found.audit = append(found.audit, entry{found.state, found.state, "Message sent: " + note})
		answer(w, http.StatusOK, map[string]any{"status": true})
	case posted.Action == "localNote":
		found.fields["localNote"] = posted.Params["localNote"]
		found.audit = append(found.audit, entry{found.state, found.state, "Local note updated"})
		answer(w, http.StatusOK, map[string]any{})
	case posted.Action == "supplierCheckInToReshare" && posted.Params["itemBarcodes"] == nil:
		found.audit = append(found.audit, entry{found.state, found.state, "NCIP CheckoutItem call failed"})
		answer(w, http.StatusBadRequest, map[string]any{"code": -3, "message": "NCIP CheckoutItem call failed"})
	default:
		found.follow(posted.Action, rule, posted.Params)
		if found.peer != nil && found.peer.state == "REQ_UNFILLED" {
			s.sendOn(found.peer)
		}
		answer(w, http.StatusOK, map[string]any{})
	}
}

// follow changes the states of both libraries.
func (r *request) follow(action string, rule rule, params map[string]any) {
	to, peer := rule.to, rule.peer
	switch {
	case action == "requesterCancel" && r.peer == nil:
		to = "REQ_CANCELLED"
	case action == "requesterCancel":
		r.before, r.peer.before = r.state, r.peer.state
	case action == "supplierRespondToCancel" && params["cancelResponse"] != "yes":
		to, peer = r.before, r.peer.before
	}
	message := "Executing action: " + action
	switch {
	case action == "supplierRespondToCancel" && to == "RES_CANCELLED":
		message = "Cancellation accepted"
	case action == "supplierRespondToCancel":
		message = "Cancellation denied"
	}
	r.move(to, message)
	if peer != "" && r.peer != nil {
		r.peer.move(peer, "Message received from the other library")
	}
}
