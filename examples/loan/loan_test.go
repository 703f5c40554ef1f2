package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

func Example() {
	main()
	// Output:
	//  1           started
	//  2  locate   waiting   who has it?
	//  3  locate   done      2 libraries have it
	//  4  approve  waiting   ask north
	//  5  approve  done      north agrees
	//  6  ship     waiting   it may come
	//  7  ship     done      on its way
	//  8  lend     waiting   it is here
	//  9  lend     reported  desk.check-out has succeeded
	// 10  lend     done      the patron has brought it back: as new
	// 11  close    waiting   back to its library
	// 12  close    done      library.return has succeeded
}

// hasty is for tests: nobody waits long.
var hasty = settings{patience: time.Hour, retry: schema.CappedBackoff(20*time.Millisecond, 2, time.Second, 6), ackWait: time.Second}

// lend runs one loan to its end; the patron brings the book back at once.
func lend(t *testing.T, town *town, s settings) saga.Saga[Loan] {
	t.Helper()
	server := httptest.NewServer(town)
	defer server.Close()
	a, err := open(t.Context(), filepath.Join(t.TempDir(), "data"), server.URL, s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := a.borrow(ctx, "loan-1", "Ada", "Middlemarch"); err != nil {
		t.Fatal(err)
	}
	if err := a.bringBack(ctx, "loan-1"); err != nil {
		t.Fatal(err)
	}
	loan, err := a.until(ctx, "loan-1", func(l saga.Saga[Loan]) bool { return l.Status.Ended() || l.Status == schema.SagaStuck })
	if err != nil {
		t.Fatal(err)
	}
	return loan
}

// each is what a loan that goes well does, but for the letter to the patron, which is told and not asked: it comes when
// it comes.
var each = []string{
	"/catalogue/find", "/library/north/request", "/library/north/ship", "/desk/check-out", "/desk/check-in", "/library/north/return",
}

func withoutLetters(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == "/desk/letter" })
}

func refuse(status int, paths ...string) func(string, int) int {
	return func(path string, n int) int {
		if slices.Contains(paths, path) {
			return status
		}
		return 0
	}
}

func TestLoan_goes_on_when_a_library_was_unreachable_for_a_while(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = func(path string, n int) int {
		if strings.HasPrefix(path, "/library/") && n <= 2 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	loan := lend(t, town, hasty)
	if loan.Status != schema.SagaDone || loan.State.Status != "CLOSED" || loan.State.Request != "R2" {
		t.Errorf("the loan is %+v", loan)
	}
	got := withoutLetters(town.done())
	slices.Sort(got)
	want := slices.Sorted(slices.Values(each))
	if !slices.Equal(got, want) {
		t.Errorf("done was %q", town.effects)
	}
}

func TestLoan_goes_to_the_next_library_when_one_refuses(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = refuse(http.StatusConflict, "/library/north/request")
	if loan := lend(t, town, hasty); loan.Status != schema.SagaDone || loan.State.Library != "south" {
		t.Errorf("the loan is %+v", loan)
	}
	if done := town.done(); slices.ContainsFunc(done, func(p string) bool { return strings.HasPrefix(p, "/library/north/") }) {
		t.Errorf("done was %q", done)
	}
}

func TestLoan_that_nobody_lends_is_taken_back(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = refuse(http.StatusConflict, "/library/north/request", "/library/south/request")
	loan := lend(t, town, hasty)
	if loan.Status != schema.SagaCompensated || loan.State.Status != "REFUSED" || loan.Reason != "no library lends it" {
		t.Errorf("the loan is %+v", loan)
	}
	if done := withoutLetters(town.done()); !slices.Equal(done, []string{"/catalogue/find"}) {
		t.Errorf("done was %q", done)
	}
}

func TestLoan_that_was_approved_is_cancelled_when_the_book_is_lost(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = refuse(http.StatusGone, "/library/north/ship")
	if loan := lend(t, town, hasty); loan.Status != schema.SagaCompensated || !strings.Contains(loan.Reason, "410 Gone") {
		t.Errorf("the loan is %+v", loan)
	}
	if done := withoutLetters(town.done()); !slices.Equal(done, []string{"/catalogue/find", "/library/north/request", "/library/north/cancel"}) {
		t.Errorf("done was %q", done)
	}
}

func TestLoan_does_not_wait_for_ever(t *testing.T) {
	t.Parallel()
	town := newTown()
	town.refuse = refuse(http.StatusServiceUnavailable, "/library/north/request")
	s := hasty
	s.retry.MaxAttempts = 1000
	s.patience = 500 * time.Millisecond
	loan := lend(t, town, s)
	// On a slow machine south may be too late as well: then nobody lends it, and both are told not to.
	want := "/library/" + loan.State.Library + "/return"
	if loan.Status == schema.SagaCompensated {
		want = "/library/south/cancel"
	}
	if done := town.done(); !slices.Contains(done, want) || !slices.Contains(done, "/library/north/cancel") && loan.Status != schema.SagaDone {
		t.Errorf("the loan is %+v, done was %q", loan, done)
	}
}
