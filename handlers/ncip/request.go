package ncip

import (
	"fmt"
	"time"
)

// RequestItemArgs are the args of request-item: user, and items or titles.
type RequestItemArgs struct {
	User   ID                `json:"user"`
	Items  []ID              `json:"items,omitempty"`
	Titles []BibliographicID `json:"titles,omitempty"`
	// RequestID is for requests that have a number already; without one it is made from the message's key, see [RequestID].
	RequestID   string       `json:"request_id,omitempty"`
	Type        string       `json:"type,omitempty"`  // RequestType, by default Hold
	Scope       string       `json:"scope,omitempty"` // RequestScopeType, by default Item for items and Bibliographic Item for titles
	Description *Description `json:"description,omitempty"`

	EarliestDateNeeded *time.Time `json:"earliest_date_needed,omitempty"`
	NeedBeforeDate     *time.Time `json:"need_before_date,omitempty"`
	PickupLocation     string     `json:"pickup_location,omitempty"`
	PickupExpiryDate   *time.Time `json:"pickup_expiry_date,omitempty"`

	ItemElements []string `json:"item_elements,omitempty"` // what to tell of the item, see [LookupItemArgs]
	UserElements []string `json:"user_elements,omitempty"` // what to tell of the user, see [LookupUserArgs]
}

// Requested is the answer of request-item. Request is what to name the request by later: some responders give it a
// number of their own.
type Requested struct {
	Request       *ID         `json:"request,omitempty"`
	Item          *ID         `json:"item,omitempty"`
	User          *ID         `json:"user,omitempty"`
	Type          string      `json:"type,omitempty"`
	Scope         string      `json:"scope,omitempty"`
	DateAvailable Date        `json:"date_available,omitempty"`
	HoldPickup    Date        `json:"hold_pickup_date,omitempty"`
	Fields        *ItemFields `json:"fields,omitempty"`
	Already       bool        `json:"already,omitempty"` // it was there: this is what the look-up says
}

func (t *target) requestItem(a RequestItemArgs, made string) (plan, error) {
	if a.User.Value == "" {
		return plan{}, missing("user.value")
	}
	if len(a.Items)+len(a.Titles) == 0 {
		return plan{}, missing("items or titles")
	}
	for i, item := range a.Items {
		if item.Value == "" {
			return plan{}, missing(fmt.Sprintf("items[%d].value", i))
		}
	}
	for i, b := range a.Titles {
		if err := b.check(); err != nil {
			return plan{}, wrong(fmt.Sprintf("titles[%d]", i), err)
		}
	}
	if a.Type == "" {
		a.Type = "Hold"
	}
	if a.Scope == "" {
		if a.Scope = "Item"; len(a.Titles) > 0 {
			a.Scope = "Bibliographic Item"
		}
	}
	request := t.requestID(a.RequestID, made)
	var what []element // titles first: so the schema has it
	for _, b := range a.Titles {
		what = append(what, b.element())
	}
	for _, item := range a.Items {
		what = append(what, item.element("Item"))
	}
	return plan{
		looks: t.lookForRequest(&a.User, request, func(found RequestedItem) (any, bool) {
			user := a.User
			return &Requested{Request: found.Request, Item: found.Item, User: &user, Type: found.Type, HoldPickup: found.Available, Already: true}, true
		}),
		send: message{"RequestItem", join(
			[]element{a.User.element("User")}, what,
			[]element{
				request.element("Request"), text("RequestType", a.Type), text("RequestScopeType", a.Scope), a.Description.optionalFields(),
				date("EarliestDateNeeded", a.EarliestDateNeeded), date("NeedBeforeDate", a.NeedBeforeDate),
				text("PickupLocation", a.PickupLocation), date("PickupExpiryDate", a.PickupExpiryDate),
			},
			texts("ItemElementType", a.ItemElements), texts("UserElementType", a.UserElements),
		)},
		read: func(n *node) any {
			r := &Requested{
				Request: readID(n, "Request"), Item: readID(n, "Item"), User: readID(n, "User"), Type: n.value("RequestType"), Scope: n.value("RequestScopeType"),
				DateAvailable: Date(n.value("DateAvailable")), HoldPickup: Date(n.value("HoldPickupDate")), Fields: readItemFields(n),
			}
			if r.Request == nil {
				r.Request = &request
			}
			return r
		},
	}, nil
}

// requestID names a request of our own.
func (t *target) requestID(given, made string) ID {
	if given == "" {
		given = made
	}
	return ID{Value: given, Agency: t.cfg.FromAgency}
}

// lookForRequest asks for a request by its number. In the user's requests an item may stand beside it, and so it does
// in the answer to a look-up by request.
func (t *target) lookForRequest(user *ID, request ID, is func(RequestedItem) (any, bool)) []look {
	var looks []look
	if user != nil && t.cfg.looks(LookUpUser) {
		looks = append(looks, look{
			message: message{"LookupUser", []element{user.element("User"), text("UserElementType", "User Id"), flag("RequestedItemsDesired", true)}},
			find: func(n *node) (any, bool) {
				for _, r := range n.all("RequestedItem") {
					if found := readRequested(r); found.Request.isOf(request) {
						if answer, ok := is(found); ok {
							return answer, true
						}
					}
				}
				return nil, false
			},
		})
	}
	if t.cfg.looks(LookUpItem) {
		looks = append(looks, look{
			message: message{"LookupItem", []element{request.element("Request")}},
			find: func(n *node) (any, bool) {
				if found := (RequestedItem{Request: readID(n, "Request"), Item: readID(n, "Item"), Available: Date(n.value("HoldPickupDate"))}); found.Request.isOf(request) {
					return is(found)
				}
				return nil, false
			},
			absent: []string{"Unknown Item", "Unknown Request"},
		})
	}
	return looks
}

// CancelRequestItemArgs are the args of cancel-request-item: user, and the request or its item, or both.
type CancelRequestItemArgs struct {
	User    ID     `json:"user"`
	Request *ID    `json:"request,omitempty"` // without an agency, it is one of our own
	Item    *ID    `json:"item,omitempty"`
	Type    string `json:"type,omitempty"` // RequestType, by default Hold
	Scope   string `json:"scope,omitempty"`
}

// Cancelled is the answer of cancel-request-item.
type Cancelled struct {
	Request *ID         `json:"request,omitempty"`
	Item    *ID         `json:"item,omitempty"`
	User    *ID         `json:"user,omitempty"`
	Fields  *ItemFields `json:"fields,omitempty"`
	Already bool        `json:"already,omitempty"` // there is no such request, for whatever reason
}

func (t *target) cancelRequestItem(a CancelRequestItemArgs, _ string) (plan, error) {
	switch {
	case a.User.Value == "":
		return plan{}, missing("user.value")
	case a.Request == nil && a.Item == nil:
		return plan{}, missing("request or item")
	case a.Request != nil && a.Request.Value == "":
		return plan{}, missing("request.value")
	case a.Item != nil && a.Item.Value == "":
		return plan{}, missing("item.value")
	}
	if a.Request != nil && a.Request.Agency == "" {
		a.Request.Agency = t.cfg.FromAgency
	}
	if a.Type == "" {
		a.Type = "Hold"
	}
	return plan{
		send: message{"CancelRequestItem", []element{
			a.User.element("User"), a.Request.optional("Request"), a.Item.optional("Item"), text("RequestType", a.Type), text("RequestScopeType", a.Scope),
		}},
		read: func(n *node) any {
			return &Cancelled{Request: readID(n, "Request"), Item: readID(n, "Item"), User: readID(n, "User"), Fields: readItemFields(n)}
		},
		done:   []string{"Unknown Request"},
		answer: &Cancelled{Request: a.Request, Item: a.Item, User: &a.User, Already: true},
	}, nil
}

// AcceptItemArgs are the args of accept-item: an item from elsewhere has come for a user.
type AcceptItemArgs struct {
	Item ID  `json:"item"`
	User *ID `json:"user,omitempty"`
	// RequestID is the number of the request that it has come for; without one it is made from the message's key.
	RequestID string `json:"request_id,omitempty"`
	Action    string `json:"action,omitempty"` // RequestedActionType, by default Hold For Pickup

	DateForReturn       *time.Time `json:"date_for_return,omitempty"` // one of these three, or none
	IndefiniteLoan      bool       `json:"indefinite_loan,omitempty"`
	NonReturnable       bool       `json:"non_returnable,omitempty"`
	RenewalNotPermitted bool       `json:"renewal_not_permitted,omitempty"`

	Description      *Description `json:"description,omitempty"`
	PickupLocation   string       `json:"pickup_location,omitempty"`
	PickupExpiryDate *time.Time   `json:"pickup_expiry_date,omitempty"`
}

// Accepted is the answer of accept-item. Some responders give the request a number of their own.
type Accepted struct {
	Request *ID  `json:"request,omitempty"`
	Item    *ID  `json:"item,omitempty"`
	Already bool `json:"already,omitempty"`
}

func (t *target) acceptItem(a AcceptItemArgs, made string) (plan, error) {
	switch {
	case a.Item.Value == "":
		return plan{}, missing("item.value")
	case a.User != nil && a.User.Value == "":
		return plan{}, missing("user.value")
	}
	ends := 0
	for _, set := range []bool{a.DateForReturn != nil, a.IndefiniteLoan, a.NonReturnable} {
		if set {
			ends++
		}
	}
	if ends > 1 {
		return plan{}, fmt.Errorf("fields %q, %q and %q: only one of them can be", "date_for_return", "indefinite_loan", "non_returnable")
	}
	if a.Action == "" {
		a.Action = "Hold For Pickup"
	}
	request := t.requestID(a.RequestID, made)
	return plan{
		// Both numbers must fit: the request alone may have been made with the same number before the item came.
		looks: t.lookForRequest(a.User, request, func(found RequestedItem) (any, bool) {
			return &Accepted{Request: found.Request, Item: found.Item, Already: true}, found.Item.is(a.Item)
		}),
		send: message{"AcceptItem", []element{
			request.element("Request"), text("RequestedActionType", a.Action), a.User.optional("User"), a.Item.element("Item"),
			date("DateForReturn", a.DateForReturn), flag("IndeterminateLoanPeriodFlag", a.IndefiniteLoan), flag("NonReturnableFlag", a.NonReturnable),
			flag("RenewalNotPermitted", a.RenewalNotPermitted), a.Description.optionalFields(),
			text("PickupLocation", a.PickupLocation), date("PickupExpiryDate", a.PickupExpiryDate),
		}},
		read: func(n *node) any { return &Accepted{Request: readID(n, "Request"), Item: readID(n, "Item")} },
	}, nil
}
