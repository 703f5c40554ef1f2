package ncip

import (
	"fmt"
	"time"
)

// CheckOutItemArgs are the args of check-out-item.
type CheckOutItemArgs struct {
	User           ID         `json:"user"`
	Item           ID         `json:"item"`
	Request        *ID        `json:"request,omitempty"` // that it is lent for; without an agency, it is one of our own
	DesiredDateDue *time.Time `json:"desired_date_due,omitempty"`
	ItemElements   []string   `json:"item_elements,omitempty"` // what to tell of the item, see [LookupItemArgs]
	UserElements   []string   `json:"user_elements,omitempty"` // what to tell of the user, see [LookupUserArgs]
}

// Loan is the answer of check-out-item and renew-item.
type Loan struct {
	Item           *ID         `json:"item,omitempty"`
	User           *ID         `json:"user,omitempty"`
	DateDue        Date        `json:"date_due,omitempty"`
	DateForReturn  Date        `json:"date_for_return,omitempty"`
	IndefiniteLoan bool        `json:"indefinite_loan,omitempty"`
	NonReturnable  bool        `json:"non_returnable,omitempty"`
	Renewals       string      `json:"renewals,omitempty"`
	Pending        bool        `json:"pending,omitempty"` // a renewal that somebody has yet to decide on
	ReplyBy        Date        `json:"reply_by,omitempty"`
	Fields         *ItemFields `json:"fields,omitempty"`
	Already        bool        `json:"already,omitempty"` // it was so before: this is what the look-up says
}

func readLoan(n *node) any {
	return &Loan{
		Item: readID(n, "Item"), User: readID(n, "User"), DateDue: Date(n.value("DateDue")), DateForReturn: Date(n.value("DateForReturn")),
		IndefiniteLoan: n.has("IndeterminateLoanPeriodFlag"), NonReturnable: n.has("NonReturnableFlag"), Renewals: n.value("RenewalCount"),
		Pending: n.has("Pending"), ReplyBy: Date(n.value("Pending", "DateOfExpectedReply")), Fields: readItemFields(n),
	}
}

func (t *target) checkOutItem(a CheckOutItemArgs, _ string) (plan, error) {
	switch {
	case a.User.Value == "":
		return plan{}, missing("user.value")
	case a.Item.Value == "":
		return plan{}, missing("item.value")
	case a.Request != nil && a.Request.Value == "":
		return plan{}, missing("request.value")
	}
	if a.Request != nil && a.Request.Agency == "" {
		a.Request.Agency = t.cfg.FromAgency
	}
	return plan{
		looks: t.lookForLoan(a.User, a.Item, nil, func(loan *Loan) bool { return true }),
		send: message{"CheckOutItem", join(
			[]element{a.User.element("User"), a.Item.element("Item"), a.Request.optional("Request"), date("DesiredDateDue", a.DesiredDateDue)},
			texts("ItemElementType", a.ItemElements), texts("UserElementType", a.UserElements),
		)},
		read: readLoan,
	}, nil
}

// lookForLoan asks whether a user has an item.
func (t *target) lookForLoan(user, item ID, elements []string, is func(*Loan) bool) []look {
	var looks []look
	check := func(loan *Loan) (any, bool) { return loan, is(loan) }
	if t.cfg.looks(LookUpUser) {
		looks = append(looks, look{
			message: message{"LookupUser", []element{user.element("User"), text("UserElementType", "User Id"), flag("LoanedItemsDesired", true)}},
			find: func(n *node) (any, bool) {
				for _, l := range n.all("LoanedItem") {
					if id := readID(l, "Item"); id.is(item) {
						return check(&Loan{
							Item: id, User: &user, DateDue: Date(l.value("DateDue")), IndefiniteLoan: l.has("IndeterminateLoanPeriodFlag"), Already: true,
						})
					}
				}
				return nil, false
			},
		})
	}
	if t.cfg.looks(LookUpItem) {
		looks = append(looks, look{
			message: message{"LookupItem", join([]element{item.element("Item")}, texts("ItemElementType", elements), []element{flag("CurrentBorrowerDesired", true)})},
			find: func(n *node) (any, bool) {
				if found := readItem(n); found.Borrower.is(user) {
					loan := &Loan{Item: found.Item, User: found.Borrower, Fields: found.Fields, Already: true}
					if found.Fields != nil {
						loan.DateDue = found.Fields.DateDue
					}
					return check(loan)
				}
				return nil, false
			},
		})
	}
	return looks
}

// CheckInItemArgs are the args of check-in-item.
type CheckInItemArgs struct {
	Item ID `json:"item"`
	// User is who is known to have the item. If the responder says that somebody else has it, it has come back and was
	// lent again: nothing is sent. If it does not know the item any more, it has come back as well: one of another library
	// may be forgotten then. Without a user, a late repeat takes the next one's loan back, or fails.
	User         *ID      `json:"user,omitempty"`
	ItemElements []string `json:"item_elements,omitempty"` // what to tell of the item, see [LookupItemArgs]
	UserElements []string `json:"user_elements,omitempty"` // what to tell of the user, see [LookupUserArgs]
}

// Returned is the answer of check-in-item.
type Returned struct {
	Item    *ID         `json:"item,omitempty"`
	User    *ID         `json:"user,omitempty"`    // who had it
	Routing string      `json:"routing,omitempty"` // what is to be done with it
	Fields  *ItemFields `json:"fields,omitempty"`
	Already bool        `json:"already,omitempty"` // it was not on loan, or not to this user any more
}

func (t *target) checkInItem(a CheckInItemArgs, _ string) (plan, error) {
	switch {
	case a.Item.Value == "":
		return plan{}, missing("item.value")
	case a.User != nil && a.User.Value == "":
		return plan{}, missing("user.value")
	}
	already := &Returned{Item: &a.Item, User: a.User, Already: true}
	p := plan{
		send: message{"CheckInItem", join([]element{a.Item.element("Item")}, texts("ItemElementType", a.ItemElements), texts("UserElementType", a.UserElements))},
		read: func(n *node) any {
			return &Returned{Item: readID(n, "Item"), User: readID(n, "User"), Routing: n.value("RoutingInformation", "RoutingInstructions"), Fields: readItemFields(n)}
		},
		done:   []string{"Item Not Checked Out"},
		answer: already,
	}
	if a.User == nil {
		return p, nil
	}
	p.done = append(p.done, "Unknown Item")
	if t.cfg.looks(LookUpItem) {
		p.looks = []look{{
			message: message{"LookupItem", []element{a.Item.element("Item"), flag("CurrentBorrowerDesired", true)}},
			find: func(n *node) (any, bool) {
				borrower := readItem(n).Borrower
				return already, borrower != nil && borrower.Value != "" && !borrower.is(*a.User)
			},
			absent: []string{"Unknown Item"},
		}}
	}
	return p, nil
}

// RenewItemArgs are the args of renew-item. One of the two dates is needed, or nobody could tell a renewal that was
// made from one that was not.
type RenewItemArgs struct {
	User ID `json:"user"`
	Item ID `json:"item"`
	// DateDue is when the item is due before the renewal, as the responder wrote it. With a later date it is renewed.
	DateDue Date `json:"date_due,omitempty"`
	// DesiredDateDue is when it shall be due. With this date or a later one it is renewed.
	DesiredDateDue *time.Time `json:"desired_date_due,omitempty"`
	ItemElements   []string   `json:"item_elements,omitempty"` // what to tell of the item, see [LookupItemArgs]
	UserElements   []string   `json:"user_elements,omitempty"` // what to tell of the user, see [LookupUserArgs]
}

func (t *target) renewItem(a RenewItemArgs, _ string) (plan, error) {
	switch {
	case a.User.Value == "":
		return plan{}, missing("user.value")
	case a.Item.Value == "":
		return plan{}, missing("item.value")
	case a.DateDue == "" && a.DesiredDateDue == nil:
		return plan{}, missing("date_due or desired_date_due")
	}
	if _, err := a.DateDue.Time(nil); a.DateDue != "" && err != nil {
		return plan{}, fmt.Errorf("field %q: is no date such as 2026-11-30T12:00:00Z", "date_due")
	}
	renewed := func(loan *Loan) bool {
		if a.DateDue != "" && loan.DateDue.after(a.DateDue) {
			return true
		}
		due, zoned, err := loan.DateDue.read(nil)
		return a.DesiredDateDue != nil && err == nil && zoned && !due.Before(a.DesiredDateDue.Truncate(time.Second))
	}
	return plan{
		looks: t.lookForLoan(a.User, a.Item, []string{"Date Due"}, renewed),
		send: message{"RenewItem", join(
			[]element{a.User.element("User"), a.Item.element("Item")},
			texts("ItemElementType", a.ItemElements), texts("UserElementType", a.UserElements),
			[]element{date("DesiredDateDue", a.DesiredDateDue)},
		)},
		read: readLoan,
	}, nil
}
