//go:build long

package main

import (
	"testing"

	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
)

func TestCrash_at_the_beginning_and_the_end_of_each_handler(t *testing.T) {
	t.Parallel()
	town := openTown(t)
	e, killed := crashing(t, town, "begin end")
	e.complete(t)
	e.wentWell(t, town, "west")
	town.happened(t)
	if len(killed) != 48 {
		t.Errorf("it was killed %d times, at %q", len(killed), killed)
	}
}

func TestCrash_while_a_loan_is_taken_back(t *testing.T) {
	t.Parallel()
	town := openTown(t)
	town.ils.Fail("CheckOutItem", 1000, nciptest.Problem{Type: "User Ineligible To Check Out This Item"})
	e, killed := crashing(t, town, "begin end")
	e.complete(t)
	e.failed(t, "User Ineligible")
	town.has(t, "REQ_REQUEST_COMPLETE")
	if len(killed) < 40 {
		t.Errorf("it was killed %d times, at %q", len(killed), killed)
	}
}
