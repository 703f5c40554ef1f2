package main

import (
	"cmp"

	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

// The later steps of a loan: from the parcel's arrival until the book is on its way home. The last two are also what
// takes a loan back that cannot be made after all.

func receive(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	return saga.Next(l, "tell the other library", act(c, "requesterReceived")), nil
}

func shelve(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
	return saga.Next(l, "keep it for them", saga.Ask(accept, ncip.AcceptItemArgs{
		Item: ncip.ID{Value: l.Barcode}, User: &ncip.ID{Value: l.Patron}, RequestID: l.Request, Description: &ncip.Description{Title: l.Title},
	})), nil
}

func lend(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
	return saga.Next(l, "it is theirs", saga.Ask(checkOut, ncip.CheckOutItemArgs{
		User: ncip.ID{Value: l.Patron}, Item: ncip.ID{Value: l.Barcode}, Request: &ncip.ID{Value: l.Request},
	})), nil
}

func lent(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	loan, err := saga.Answer[ncip.Loan](report)
	l.Status = "LENT"
	return saga.Next(l, "lent", saga.Tell(write, Letter{l.Patron, l.Title + " has come, and is yours until " + string(loan.DateDue)})), err
}

func takeIn(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	return saga.Next(l, cmp.Or(c.Reason, "off their account"), saga.Ask(checkIn, ncip.CheckInItemArgs{
		Item: ncip.ID{Value: l.Barcode}, User: &ncip.ID{Value: l.Patron},
	})), nil
}

func giveBack(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	return saga.Next(l, cmp.Or(c.Reason, "home with it"), act(c, "patronReturnedItem")), nil
}

// sendOff takes the reports of two actions, of which the second is valid after the first.
func sendOff(c *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	done, err := saga.Answer[reshare.Performed](report)
	if done.Action != "shippedReturn" {
		return saga.Next(l, "packed", act(c, "shippedReturn")), err
	}
	l.Status = "CLOSED"
	return saga.Next(l, "on its way home"), err
}
