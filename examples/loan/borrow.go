package main

import (
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

// The first steps of a loan: from the patron's wish until the book is on its way.

func mayBorrow(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "CHECKING"
	return saga.Next(l, "may they borrow?", saga.Ask(lookUp, ncip.LookupUserArgs{User: ncip.ID{Value: l.Patron}})), nil
}

func isPatron(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	user, err := saga.Answer[ncip.User](report)
	if err == nil && len(user.Blocks) > 0 {
		err = saga.Fail("the patron is blocked: " + user.Blocks[0].Type)
	}
	return saga.Next(l, "they may"), err
}

func apologise(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "REFUSED"
	return saga.Next(l, c.Reason, saga.Tell(write, Letter{l.Patron, "Sorry, no luck with " + l.Title})), nil
}

// request asks ReShare for the book. The job's key is the saga's id: other jobs name the request by it.
func request(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "APPROVING"
	job := saga.Ask(create, reshare.CreateArgs{PatronIdentifier: l.Patron, Title: l.Title, SystemInstanceIdentifier: l.Record})
	job.Key = c.ID
	return saga.Next(l, "who lends it?", job), nil
}

// asking are the states in which no library has agreed, and one still may: ReShare asks one after the other.
var asking = []string{
	"REQ_IDLE", "REQ_VALIDATED", "REQ_SOURCING_ITEM", "REQ_SUPPLIER_IDENTIFIED", "REQ_REQUEST_SENT_TO_SUPPLIER", "REQ_UNFILLED",
}

const (
	agreed = "REQ_EXPECTS_TO_SUPPLY"
	onWay  = "REQ_SHIPPED"
)

// after asks for the request once these states are behind it. ReShare calls nobody, so the job looks at it again and again;
// the saga waits in its state meanwhile, and its ledger is not filled with looks. It has an ordering key of its own: it
// must not hold back the job that cancels.
func (p pace) after(c *saga.Context, states []string) saga.Intent {
	job := saga.Ask(look, reshare.GetArgs{Which: reshare.Which{Key: c.ID}, While: states, Every: p.pause.String()})
	job.OrderingKey = c.ID + "/look"
	return job
}

// approved takes two reports: the request was made, and a library has agreed or none is left.
func (p pace) approved(c *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	if report.Action == create.Action {
		made, err := saga.Answer[reshare.Created](report)
		l.Request = made.ID
		return saga.Next(l, "ReShare is asking libraries", p.after(c, asking)), err
	}
	got, err := saga.Answer[reshare.Got](report)
	if err == nil && got.State != agreed && got.State != onWay {
		err = saga.Fail("no library lends it: " + got.State)
	}
	l.Status = "APPROVED"
	return saga.Next(l, "a library will send it"), err
}

// cancel calls the request off, and does not wait until the library agrees. One that is over needs no cancelling; a book
// that is on its way cannot be stopped: then the saga is stuck until somebody has seen to it.
func cancel(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "CANCELLED"
	return saga.Next(l, c.Reason, act(c, "requesterCancel", "REQ_CANCEL_PENDING", "REQ_CANCELLED", "REQ_END_OF_ROTA", "REQ_SHIPPED_TO_SUPPLIER")), nil
}

// act performs an action on the request. reaches are the states that show it to be done, if not those that the target
// knows of.
func act(c *saga.Context, action string, reaches ...string) saga.Intent {
	return saga.Ask(perform, reshare.PerformArgs{Which: reshare.Which{Key: c.ID}, Action: action, Reaches: reaches})
}

func (p pace) expect(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "SHIPPING"
	return saga.Next(l, "when will it come?", p.after(c, append([]string{agreed}, asking...))), nil
}

// shipped notes the number under which the book is going to be lent here: that of the request, as it is on the parcel.
func shipped(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	got, err := saga.Answer[reshare.Got](report)
	if err == nil && got.State != onWay {
		err = saga.Fail("nobody sends it: " + got.State)
	}
	l.Barcode = got.HRID
	return saga.Next(l, "on its way as "+got.HRID), err
}
