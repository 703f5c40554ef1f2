package main

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/schema"
)

func Example() {
	main()
	// Output:
	//  1            started
	//  2  check     waiting   may they borrow?
	//  3  check     done      they may
	//  4  approve   waiting   who lends it?
	//  5  approve   reported  ReShare is asking libraries
	//  6  approve   done      a library will send it
	//  7  ship      waiting   when will it come?
	//  8  ship      reported  on its way as EAST-1
	//  9  ship      done      the parcel is here
	// 10  receive   waiting   tell the other library
	// 11  receive   done      reshare.perform-action has succeeded
	// 12  shelve    waiting   keep it for them
	// 13  shelve    done      ils.accept-item has succeeded
	// 14  lend      waiting   it is theirs
	// 15  lend      reported  lent
	// 16  lend      done      the patron has brought it back: as new
	// 17  take-in   waiting   off their account
	// 18  take-in   done      ils.check-in-item has succeeded
	// 19  give-back waiting   home with it
	// 20  give-back reported  packed
	// 21  give-back done      on its way home
	// letters: [Middlemarch has come, and is yours until 2026-12-28T12:00:00Z]
}

// hasty is for tests: nobody waits long.
var hasty = settings{
	pace:  pace{patience: time.Hour, pause: 20 * time.Millisecond},
	retry: schema.CappedBackoff(20*time.Millisecond, 2, time.Second, 6), ackWait: time.Second,
}

func openTown(t *testing.T, changes ...func(*town)) *town {
	t.Helper()
	town := newTown(changes...)
	t.Cleanup(town.Close)
	return town
}

// end is how a loan has ended.
type end struct {
	Loan    saga.Saga[Loan]
	Events  []schema.SagaEvent
	Letters []string
}

// run takes a loan to its end. The desk is quick: it says at once that the parcel is here and the book back.
func run(ctx context.Context, a *app) (e end, err error) {
	if err := a.borrow(ctx, "loan-1", Loan{Patron: "ada", Title: "Middlemarch", Record: "ocm123"}); err != nil {
		return e, err
	}
	if err := a.tell(ctx, "loan-1", "arrived", struct{}{}); err != nil {
		return e, err
	}
	if err := a.tell(ctx, "loan-1", "returned", Returned{"as new"}); err != nil {
		return e, err
	}
	e.Loan, err = a.until(ctx, "loan-1", func(l saga.Saga[Loan]) bool { return l.Status.Ended() || l.Status == schema.SagaStuck })
	if err != nil {
		return e, err
	}
	if e.Events, err = a.in.Store.SagaHistory(ctx, "loan", "loan-1"); err != nil {
		return e, err
	}
	if _, err := a.bridge.Drain(ctx); err != nil { // letters are told and not asked: they come when they come
		return e, err
	}
	e.Letters, err = a.letters(ctx)
	return e, err
}

func lendIn(t *testing.T, town *town, s settings) end {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, err := open(ctx, filepath.Join(t.TempDir(), "data"), town.URL, s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	e, err := run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wentWell checks a loan that was lent by a library and returned.
func (e end) wentWell(t *testing.T, town *town, library string) {
	t.Helper()
	if e.Loan.Status != schema.SagaDone || e.Loan.State.Status != "CLOSED" {
		t.Errorf("the loan is %+v", e.Loan)
	}
	e.wrote(t, "Middlemarch has come, and is yours until 2026-12-28T12:00:00Z")
	if s := town.reshare.Requests(library); len(s) != 1 || s[0].State != "RES_COMPLETE" {
		t.Errorf("%s has %+v", library, s)
	}
	town.has(t, "REQ_REQUEST_COMPLETE")
}

func (e end) wrote(t *testing.T, letters ...string) {
	t.Helper()
	if !slices.Equal(e.Letters, letters) {
		t.Errorf("letters are %q", e.Letters)
	}
}

// failed checks a loan that was taken back.
func (e end) failed(t *testing.T, reason string) {
	t.Helper()
	if e.Loan.Status != schema.SagaCompensated || e.Loan.State.Status != "REFUSED" || !strings.Contains(e.Loan.Reason, reason) {
		t.Errorf("the loan is %+v", e.Loan)
	}
	e.wrote(t, "Sorry, no luck with Middlemarch")
}

// has checks that east has one request, in this state, and nothing is lent any more.
func (t *town) has(tb testing.TB, state string) {
	tb.Helper()
	if requests := t.reshare.Requests("east"); len(requests) != 1 || requests[0].State != state {
		tb.Errorf("east has %+v", requests)
	}
	if s := t.ils.State(); len(s.Loans) > 0 {
		tb.Errorf("there is still a loan: %+v", s)
	}
}

func TestLoan_goes_on_when_the_systems_were_unreachable_for_a_while(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	town := openTown(t, func(w *town) {
		w.refuse = func(r *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			if seen[r.URL.Path]++; seen[r.URL.Path] < 3 {
				return http.StatusServiceUnavailable
			}
			return 0
		}
	})
	lendIn(t, town, hasty).wentWell(t, town, "west")
}

// declines makes a library say no to a request in a state.
func declines(library, state string) func(*town) {
	return func(w *town) { w.staff[library][state] = "supplierCannotSupply" }
}

func TestLoan_goes_to_the_next_library_when_one_refuses(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"RES_IDLE", "RES_AWAIT_PICKING"} { // at once, or after it has said yes and found nothing
		town := openTown(t, declines("west", state))
		lendIn(t, town, hasty).wentWell(t, town, "south")
	}
}

func TestLoan_that_nobody_lends_is_taken_back(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"RES_IDLE", "RES_AWAIT_PICKING"} {
		town := openTown(t, declines("west", state), declines("south", state))
		lendIn(t, town, hasty).failed(t, "REQ_END_OF_ROTA")
		town.has(t, "REQ_END_OF_ROTA")
	}
}

func TestLoan_is_not_for_those_who_are_blocked(t *testing.T) {
	t.Parallel()
	town := openTown(t)
	town.ils.AddUser(nciptest.User{ID: "ada", Blocked: true})
	lendIn(t, town, hasty).failed(t, "the patron is blocked")
	if asked := town.reshare.Requests("east"); len(asked) != 0 {
		t.Errorf("east has %+v", asked)
	}
}

func TestLoan_that_was_approved_is_taken_back_when_the_desk_refuses(t *testing.T) {
	t.Parallel()
	town := openTown(t)
	town.ils.Fail("CheckOutItem", 1, nciptest.Problem{Type: "User Ineligible To Check Out This Item"})
	lendIn(t, town, hasty).failed(t, "User Ineligible")
	town.has(t, "REQ_REQUEST_COMPLETE") // it has gone home
}

func TestLoan_whose_book_cannot_be_stopped_is_left_to_somebody(t *testing.T) {
	t.Parallel()
	town := openTown(t, func(w *town) {
		w.refuse = func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/performAction") {
				return http.StatusForbidden
			}
			return 0
		}
	})
	e := lendIn(t, town, hasty)
	if e.Loan.Status != schema.SagaStuck || e.Loan.Step != "approve" || !strings.Contains(e.Loan.Reason, "403") {
		t.Errorf("the loan is %+v", e.Loan)
	}
	town.has(t, "REQ_SHIPPED")
}

func TestLoan_does_not_wait_for_ever(t *testing.T) {
	t.Parallel()
	town := openTown(t, func(w *town) { w.staff["west"] = nil })
	s := hasty
	s.patience, s.retry.MaxAttempts = 300*time.Millisecond, 1000
	lendIn(t, town, s).failed(t, "no answer within 300ms")
	town.has(t, "REQ_CANCEL_PENDING")

	late := town.reshare.Requests("west")[0].ID
	if err := town.act("west", late, "respondYes"); schema.KindOf(err) != schema.Permanent {
		t.Errorf("a yes that comes too late: %v", err)
	}
	if err := town.act("west", late, "supplierRespondToCancel"); err != nil {
		t.Error(err)
	}
	town.has(t, "REQ_CANCELLED")
}
