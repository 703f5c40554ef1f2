package main

import (
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

// Loan is what is known of a loan.
type Loan struct {
	Patron    string   `json:"patron"`
	Title     string   `json:"title"`
	Status    string   `json:"status,omitempty"`    // what the patron sees
	Libraries []string `json:"libraries,omitempty"` // that have the title and were not asked yet
	Library   string   `json:"library,omitempty"`   // that was asked last
	Request   string   `json:"request,omitempty"`   // its number for our request
	Barcode   string   `json:"barcode,omitempty"`   // of the copy that it sent
}

// The jobs of a loan.
var (
	find       = schema.JobType[Title]{Target: "catalogue", Action: "find"}
	request    = schema.JobType[AtLibrary]{Target: "library", Action: "request"}
	cancel     = schema.JobType[AtLibrary]{Target: "library", Action: "cancel"}
	ship       = schema.JobType[AtLibrary]{Target: "library", Action: "ship"}
	sendBack   = schema.JobType[AtLibrary]{Target: "library", Action: "return"}
	checkOut   = schema.JobType[AtDesk]{Target: "desk", Action: "check-out"}
	checkIn    = schema.JobType[AtDesk]{Target: "desk", Action: "check-in"}
	tellPatron = schema.JobType[Letter]{Target: "desk", Action: "letter"}
)

// Arguments and answers of the jobs.
type (
	Title     struct{ Title string }
	AtLibrary struct{ Library, Title, Request string }
	AtDesk    struct{ Patron, Barcode string }
	Letter    struct{ Patron, Text string }
	Found     struct{ Libraries []string }
	Agreed    struct{ Request string }
	Shipped   struct{ Barcode string }
	Returned  struct{ Condition string }
)

// newLoan returns the definition of loans; a library that has not answered after patience is not waited for any longer.
func newLoan(patience time.Duration) *saga.Definition[Loan] {
	return saga.New(
		"loan",
		saga.Step[Loan]{
			Name: "locate",
			Do: func(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
				l.Status = "LOOKING"
				return saga.Next(l, "who has it?", saga.Ask(find, Title{l.Title})), nil
			},
			OnReport: func(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
				found, err := saga.Answer[Found](report)
				l.Libraries = found.Libraries
				return saga.Next(l, fmt.Sprintf("%d libraries have it", len(found.Libraries))), err
			},
			Undo: apologise,
		},
		saga.Step[Loan]{
			Name:     "approve",
			Do:       askNext,
			OnReport: agreed,
			OnFailed: func(c *saga.Context, l Loan, _ schema.Outcome) (saga.Result[Loan], error) { return askNext(c, l) },
			Timeout:  patience,
			OnTimeout: func(c *saga.Context, l Loan) (saga.Result[Loan], error) {
				late := saga.Tell(cancel, AtLibrary{l.Library, l.Title, l.Request})
				res, err := askNext(c, l)
				res.Intents = append(res.Intents, late)
				return res, err
			},
			Undo: func(c *saga.Context, l Loan) (saga.Result[Loan], error) {
				l.Status = "CANCELLED"
				return saga.Next(l, c.Reason, saga.Ask(cancel, AtLibrary{l.Library, l.Title, l.Request})), nil
			},
		},
		saga.Step[Loan]{
			Name: "ship",
			Do: func(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
				l.Status = "SHIPPING"
				return saga.Next(l, "it may come", saga.Ask(ship, AtLibrary{l.Library, l.Title, l.Request})), nil
			},
			OnReport: func(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
				shipped, err := saga.Answer[Shipped](report)
				l.Barcode = shipped.Barcode
				return saga.Next(l, "on its way"), err
			},
		},
		saga.Step[Loan]{
			Name: "lend",
			Do: func(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
				l.Status = "LENT"
				return saga.Next(l, "it is here", saga.Ask(checkOut, AtDesk{l.Patron, l.Barcode}),
					saga.Tell(tellPatron, Letter{l.Patron, "Your book has arrived: " + l.Title})), nil
			},
			Await: "returned",
			Undo: func(c *saga.Context, l Loan) (saga.Result[Loan], error) {
				return saga.Next(l, c.Reason, saga.Tell(checkIn, AtDesk{l.Patron, l.Barcode})), nil
			},
		},
		saga.Step[Loan]{
			Name: "close",
			Do: func(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
				l.Status = "CLOSED"
				return saga.Next(l, "back to its library", saga.Tell(checkIn, AtDesk{l.Patron, l.Barcode}),
					saga.Ask(sendBack, AtLibrary{l.Library, l.Title, l.Request})), nil
			},
		},
		saga.OnSignal("returned", func(_ *saga.Context, l Loan, r Returned) (saga.Result[Loan], error) {
			l.Status = "RETURNED"
			return saga.Next(l, "the patron has brought it back: "+r.Condition), nil
		}),
	)
}

// askNext asks the next library. The step waits in APPROVING until it answers: what it answers is a later event.
func askNext(_ *saga.Context, l Loan) (saga.Result[Loan], error) {
	if len(l.Libraries) == 0 {
		return saga.Result[Loan]{}, saga.Fail("no library lends it")
	}
	l.Status, l.Library, l.Libraries = "APPROVING", l.Libraries[0], l.Libraries[1:]
	return saga.Next(l, "ask "+l.Library, saga.Ask(request, AtLibrary{Library: l.Library, Title: l.Title})), nil
}

func agreed(_ *saga.Context, l Loan, report schema.Outcome) (saga.Result[Loan], error) {
	a, err := saga.Answer[Agreed](report)
	if err == nil && a.Request == "" {
		err = handlers.Permanent(fmt.Errorf("%s has agreed and gave no number", l.Library))
	}
	l.Status, l.Request = "APPROVED", a.Request
	return saga.Next(l, l.Library+" agrees"), err
}

func apologise(c *saga.Context, l Loan) (saga.Result[Loan], error) {
	l.Status = "REFUSED"
	return saga.Next(l, c.Reason, saga.Tell(tellPatron, Letter{l.Patron, "Sorry, no luck with " + l.Title})), nil
}
