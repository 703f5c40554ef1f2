package nciptest_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
)

// A library for a test: its clock stands still, one item is on loan, and the next check-out fails once.
func ExampleServer() {
	today := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	library := nciptest.New(nciptest.Options{Now: func() time.Time { return today }})
	library.AddUser(nciptest.User{ID: "2001"})
	library.AddItem(nciptest.Item{ID: "39001", Title: "Emma"})
	library.Lend(nciptest.Loan{Item: "39001", User: "2001", Due: today.AddDate(0, 0, 28)})
	library.Fail("CheckOutItem", 1, nciptest.Problem{Type: "Temporary Processing Failure"})

	server := httptest.NewServer(library) // its URL is a target's base_url
	defer server.Close()

	for _, loan := range library.State().Loans {
		fmt.Println(loan.User, "has", loan.Item, "until", loan.Due.Format(time.DateOnly))
	}
	// Output: 2001 has 39001 until 2026-12-28
}
