package main

import (
	"time"

	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

// Loan is what is known of a loan.
type Loan struct {
	Patron  string `json:"patron"` // as the library's own system knows them
	Title   string `json:"title"`
	Record  string `json:"record"`            // of the title, in the index that the libraries share
	Status  string `json:"status,omitempty"`  // what the patron sees
	Request string `json:"request,omitempty"` // its id in ReShare
	Barcode string `json:"barcode,omitempty"` // of the book while it is here
}

// The jobs of a loan: what the targets of types reshare and ncip can do, and a letter.
var (
	create  = schema.JobType[reshare.CreateArgs]{Target: "reshare", Action: reshare.ActionCreate}
	look    = schema.JobType[reshare.GetArgs]{Target: "reshare", Action: reshare.ActionGet}
	perform = schema.JobType[reshare.PerformArgs]{Target: "reshare", Action: reshare.ActionPerform}

	lookUp   = schema.JobType[ncip.LookupUserArgs]{Target: "ils", Action: ncip.ActionLookupUser}
	accept   = schema.JobType[ncip.AcceptItemArgs]{Target: "ils", Action: ncip.ActionAcceptItem}
	checkOut = schema.JobType[ncip.CheckOutItemArgs]{Target: "ils", Action: ncip.ActionCheckOutItem}
	checkIn  = schema.JobType[ncip.CheckInItemArgs]{Target: "ils", Action: ncip.ActionCheckInItem}

	write = schema.JobType[Letter]{Target: "letters", Action: "write"}
)

// pace says how long others are given.
type pace struct {
	patience time.Duration // until a library must have agreed
	pause    time.Duration // between two looks at ReShare
}

// newLoan returns the definition of loans: what is done, step by step, and what takes it back.
func newLoan(p pace) *saga.Definition[Loan] {
	return saga.New(
		"loan",
		saga.Step[Loan]{Name: "check", Do: mayBorrow, OnReport: isPatron, Undo: apologise},
		saga.Step[Loan]{Name: "approve", Do: request, OnReport: p.approved, Timeout: p.patience, Undo: cancel},
		saga.Step[Loan]{Name: "ship", Do: p.expect, OnReport: shipped, Await: "arrived"},
		saga.Step[Loan]{Name: "receive", Do: receive, Undo: giveBack, OnUndone: sendOff},
		saga.Step[Loan]{Name: "shelve", Do: shelve, Undo: takeIn},
		saga.Step[Loan]{Name: "lend", Do: lend, OnReport: lent, Await: "returned"},
		saga.Step[Loan]{Name: "take-in", Do: takeIn},
		saga.Step[Loan]{Name: "give-back", Do: giveBack, OnReport: sendOff},
		saga.OnSignal("arrived", func(_ *saga.Context, l Loan, _ struct{}) (saga.Result[Loan], error) {
			l.Status = "ARRIVED"
			return saga.Next(l, "the parcel is here"), nil
		}),
		saga.OnSignal("returned", func(_ *saga.Context, l Loan, r Returned) (saga.Result[Loan], error) {
			l.Status = "RETURNED"
			return saga.Next(l, "the patron has brought it back: "+r.Condition), nil
		}),
	)
}

// Returned is what the desk says of a book that was brought back.
type Returned struct{ Condition string }
