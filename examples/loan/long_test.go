//go:build long

package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestCrash_at_the_beginning_and_the_end_of_each_handler(t *testing.T) {
	t.Parallel()
	town := newTown()
	end, killed := crashing(t, town, "begin end")
	wentWell(t, town, end)
	if len(killed) != 28 {
		t.Errorf("it was killed at %q", killed)
	}
}

func TestCrash_while_a_loan_is_taken_back(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = refuse(http.StatusGone, "/library/north/ship")
	end, killed := crashing(t, town, "begin end")
	end.complete(t)
	if end.Loan.Status != schema.SagaCompensated || end.Loan.State.Status != "REFUSED" {
		t.Errorf("the loan is %+v", end.Loan)
	}
	if done := withoutLetters(town.done()); !slices.Equal(done, []string{"/catalogue/find", "/library/north/request", "/library/north/cancel"}) {
		t.Errorf("done was %q", done)
	}
	if len(killed) < 20 {
		t.Errorf("it was killed at %q", killed)
	}
}
