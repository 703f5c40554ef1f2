package ncip_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/schema"
)

// world is a library with a target for it, made anew for each scenario.
func world(t *testing.T, o nciptest.Options, change ...func(*ncip.Config)) func() handlertest.World {
	return func() handlertest.World {
		s := library(o)
		s.Lend(nciptest.Loan{Item: "39002", User: "2001", Due: now.AddDate(0, 0, 7)})
		s.AddItem(nciptest.Item{ID: "ILL-7", Foreign: true})
		s.Lend(nciptest.Loan{Item: "ILL-7", User: "2001", Due: now.AddDate(0, 0, 7)})
		s.AddRequest(nciptest.Request{ID: "ill-1", Agency: "MB", User: "2001", Record: "b2", Type: "Hold", Status: "In Process", Placed: now})
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		cfg := config(t, server.URL)
		for _, c := range change {
			c(&cfg)
		}
		return handlertest.World{
			Handler: func() handlers.Handler { return newHandler(t, cfg) },
			State:   func() any { return s.State() },
		}
	}
}

const dueInAWeek = "2026-12-07T12:00:00Z"

// effects are jobs that change something; none is in another's way.
var effects = map[string]schema.Envelope{
	"request-item":         job("request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"}]}`),
	"request-item a title": job("request-item", `{"user":{"value":"2001"},"titles":[{"record":"b1","code":"OCLC"}]}`),
	"cancel-request-item":  job("cancel-request-item", `{"user":{"value":"2001"},"request":{"value":"ill-1"}}`),
	"accept-item":          job("accept-item", `{"item":{"value":"ILL-1"},"user":{"value":"2002"},"description":{"title":"From afar"}}`),
	"check-out-item":       job("check-out-item", `{"user":{"value":"2001"},"item":{"value":"39001"}}`),
	"check-in-item":        job("check-in-item", `{"item":{"value":"39002"},"user":{"value":"2001"}}`),
	"check-in-item to go":  job("check-in-item", `{"item":{"value":"ILL-7"},"user":{"value":"2001"}}`), // the library forgets it then
	"renew-item":           job("renew-item", `{"user":{"value":"2001"},"item":{"value":"39002"},"date_due":"`+dueInAWeek+`"}`),
	"renew-item to a date": job("renew-item", `{"user":{"value":"2001"},"item":{"value":"39002"},"desired_date_due":"2027-01-10T00:00:00Z"}`),
}

func TestActions_may_run_again(t *testing.T) {
	t.Parallel()
	for name, env := range effects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways := [][]string{nil}
			switch name {
			case "request-item", "accept-item", "check-out-item", "renew-item": // where each look-up is enough
				ways = append(ways, []string{"user"}, []string{"item"})
			}
			for _, which := range ways {
				handlertest.CheckIdempotent(t, world(t, nciptest.Options{}, lookUps(which...)), env)
			}
		})
	}
}

// Without look-ups only what a responder refuses the second time in words of the standard is safe.
func TestActions_without_look_ups(t *testing.T) {
	t.Parallel()
	for name, safe := range map[string]bool{
		"cancel-request-item": true, "check-in-item": true, "check-in-item to go": true,
		"request-item": false, "accept-item": false, "check-out-item": false, "renew-item": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := handlertest.Examine(t.Context(), world(t, nciptest.Options{}, lookUps("none")), effects[name])
			if v.Unjudged != "" || v.Idempotent != safe {
				t.Errorf("idempotent %v, want %v:\n%v", v.Idempotent, safe, v)
			}
		})
	}
}

// The one gap that look-ups leave: a run that was paused between look-up and renewal, at a responder that lets renewals
// follow each other at once. docs/targets/ncip.md says so.
func TestRenewItem_is_overtaken_where_renewals_add_up(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fromDue  bool
		renewals int
	}{
		"renew-item":           {true, 2}, // the gap
		"renew-item from now":  {false, 1},
		"renew-item to a date": {true, 1},
	} {
		s, h := setup(t, nciptest.Options{RenewFromDue: c.fromDue}, lookUps("user"))
		s.Lend(nciptest.Loan{Item: "39002", User: "2001", Due: now.AddDate(0, 0, 7)})
		env := effects[strings.TrimSuffix(name, " from now")]
		s.Intercept("LookupUser", 1, func(w http.ResponseWriter, _ *http.Request) {
			loan := "<LoanedItem><ItemId><ItemIdentifierValue>39002</ItemIdentifierValue></ItemId><DateDue>" + dueInAWeek + "</DateDue></LoanedItem></LookupUserResponse>"
			fmt.Fprint(w, strings.Replace(good, "</LookupUserResponse>", loan, 1))
			if _, err := handle(t, h, env); err != nil { // another run, after our look-up was answered
				t.Error(err)
			}
		})
		must(t, h, env)
		if loan := s.State().Loans[0]; loan.Renewals != c.renewals {
			t.Errorf("%s: renewed %d times, want %d", name, loan.Renewals, c.renewals)
		}
	}
}

// A responder that numbers requests itself cannot be asked for ours: what is refused as a duplicate is not taken for it.
func TestRequestItem_where_numbers_are_the_library_s(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{OwnRequestIDs: true})
	env := effects["request-item"]
	if got := must(t, h, env); !strings.Contains(got, `"value":"R-1"`) {
		t.Errorf("reported %s", got)
	}
	_, err := handle(t, h, env)
	wantKind(t, err, schema.Permanent, "RequestItem: Duplicate Request")
	if n := len(s.State().Requests); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// The same duplicate is taken for ours where the look-up has our number, also if the first look came too early.
func TestRequestItem_of_a_duplicate_that_is_ours(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{}, lookUps("user"))
	s.Intercept("LookupUser", 1, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := handle(t, h, effects["request-item"]); err != nil { // another run, between our look and our request
			t.Error(err)
		}
		fmt.Fprint(w, good)
	})
	if got := must(t, h, effects["request-item"]); !strings.Contains(got, `"already":true`) {
		t.Errorf("reported %s", got)
	}
	if asked := strings.Join(s.Asked(), " "); asked != "LookupUser LookupUser RequestItem RequestItem LookupUser" {
		t.Errorf("asked for %s", asked)
	}
}

func TestAcceptItem_is_not_proven_by_the_request_alone(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	must(t, h, job("request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"}],"request_id":"ill-3"}`))
	got := must(t, h, job("accept-item", `{"item":{"value":"ILL-3"},"user":{"value":"2001"},"request_id":"ill-3"}`))
	if strings.Contains(got, "already") || len(s.State().Items) != 3 {
		t.Errorf("reported %s, items %v", got, s.State().Items)
	}
}

func TestCheckInItem_leaves_the_next_loan_alone(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	s.Lend(nciptest.Loan{Item: "39001", User: "2002", Due: now})
	got := must(t, h, job("check-in-item", `{"item":{"value":"39001"},"user":{"value":"2001"}}`))
	if !strings.Contains(got, `"already":true`) || len(s.State().Loans) != 1 {
		t.Errorf("reported %s, loans %v", got, s.State().Loans)
	}
	if got := must(t, h, job("check-in-item", `{"item":{"value":"39001"},"user":{"value":"2002"}}`)); strings.Contains(got, "already") || len(s.State().Loans) != 0 {
		t.Errorf("reported %s, loans %v", got, s.State().Loans)
	}
}

func TestCheckOutItem_of_what_somebody_else_has(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	s.Lend(nciptest.Loan{Item: "39001", User: "2002", Due: now})
	_, err := handle(t, h, effects["check-out-item"])
	wantKind(t, err, schema.Permanent, "CheckOutItem: Item Already Checked Out")
}

// The answer to the first attempt is lost: the second finds what it did.
func TestLost_answers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"request-item", "accept-item", "check-out-item", "check-in-item", "renew-item"} {
		service := map[string]string{
			"request-item": "RequestItem", "accept-item": "AcceptItem", "check-out-item": "CheckOutItem", "check-in-item": "CheckInItem", "renew-item": "RenewItem",
		}[name]
		s, h := setup(t, nciptest.Options{RenewFromDue: true})
		s.Lend(nciptest.Loan{Item: "39002", User: "2001", Due: now.AddDate(0, 0, 7)})
		s.LoseAnswer(service, 1)
		_, err := handle(t, h, effects[name])
		wantKind(t, err, schema.Temporary, service+": ")
		before := s.State()
		if got := must(t, h, effects[name]); !strings.Contains(got, `"already":true`) {
			t.Errorf("%s: reported %s", name, got)
		}
		if after := s.State(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: the second attempt changed %v to %v", name, before, after)
		}
	}
}

func TestManyJobs_at_the_same_time(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	var wg sync.WaitGroup
	for i := range 20 {
		id := fmt.Sprintf("4%03d", i)
		s.AddItem(nciptest.Item{ID: id})
		for range 2 { // each twice
			wg.Go(func() {
				env := schema.NewJob("library", "check-out-item", []byte(`{"user":{"value":"2001"},"item":{"value":"`+id+`"}}`), schema.WithKey(id))
				if _, err := handle(t, h, env); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
	}
	wg.Wait()
	if n := len(s.State().Loans); n != 20 {
		t.Errorf("%d loans", n)
	}
	check(t, s)
}

// A date without a zone is later than one without a zone; against any other it proves nothing.
func TestRenewItem_compares_like_with_like(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, due string
		renewed   bool
	}{
		{`"date_due":"2026-12-07T12:00:00"`, "2026-12-28T12:00:00", true},
		{`"date_due":"2026-12-07"`, "2026-12-28", true},
		{`"date_due":"2026-12-07T12:00:00"`, "2026-12-07T12:00:00", false},
		{`"date_due":"2026-12-07T12:00:00"`, "2026-12-28T12:00:00Z", false},
		{`"date_due":"2026-12-07T12:00:00Z"`, "2026-12-07T13:00:00+01:00", false},
		{`"date_due":"2026-12-07T12:00:00Z"`, "2026-12-07T13:00:01+01:00", true},
		{`"desired_date_due":"2026-12-28T12:00:00Z"`, "2026-12-28T12:00:00Z", true},
		{`"desired_date_due":"2026-12-28T12:00:00Z"`, "2026-12-28T11:59:59Z", false},
		{`"desired_date_due":"2026-12-28T12:00:00Z"`, "2027-12-28T12:00:00", false},
		{`"date_due":"2026-12-07T12:00:00"`, "soon", false},
	} {
		s, h := setup(t, nciptest.Options{}, lookUps("user"))
		s.Intercept("LookupUser", 2, func(w http.ResponseWriter, _ *http.Request) {
			loan := "<LoanedItem><ItemId><ItemIdentifierValue>39002</ItemIdentifierValue></ItemId><DateDue>" + c.due + "</DateDue></LoanedItem></LookupUserResponse>"
			fmt.Fprint(w, strings.Replace(good, "</LookupUserResponse>", loan, 1))
		})
		got, err := handle(t, h, job("renew-item", `{"user":{"value":"2001"},"item":{"value":"39002"},`+c.args+`}`))
		if sent := slices.Contains(s.Asked(), "RenewItem"); sent == c.renewed || c.renewed != strings.Contains(got, `"already":true`) || (err == nil) != c.renewed {
			t.Errorf("%s, due %s: reported %s, error %v, asked %v", c.args, c.due, got, err, s.Asked())
		}
	}
}
