package ncip_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/schema"
)

// success stands for no error.
const success schema.ErrorKind = 99

// The table of docs/targets/ncip.md, "Problems".
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, service, problem string
		kind                     schema.ErrorKind
		already                  bool
	}{
		{"lookup-user", "LookupUser", "Temporary Processing Failure", schema.Temporary, false},
		{"lookup-user", "LookupUser", "temporary processing failure", schema.Temporary, false},
		{"lookup-user", "LookupUser", "Unknown User", schema.Permanent, false},
		{"lookup-user", "LookupUser", "Unsupported Service", schema.Permanent, false},
		{"lookup-user", "LookupUser", "Something of our own", schema.Permanent, false},
		{"lookup-user", "LookupUser", "", schema.Permanent, false},
		{"lookup-item", "LookupItem", "Unknown Item", schema.Permanent, false},
		{"request-item", "RequestItem", "Temporary Processing Failure", schema.Temporary, false},
		{"request-item", "RequestItem", "User Blocked", schema.Permanent, false},
		{"request-item", "RequestItem", "Duplicate Request", schema.Permanent, false},
		{"accept-item", "AcceptItem", "Cannot Accept Item", schema.Permanent, false},
		{"accept-item", "AcceptItem", "Duplicate Item", schema.Permanent, false},
		{"check-out-item", "CheckOutItem", "Item Already Checked Out", schema.Permanent, false},
		{"renew-item", "RenewItem", "Maximum Renewals Exceeded", schema.Permanent, false},
		{"check-in-item", "CheckInItem", "Item Not Checked Out", success, true},
		{"check-in-item", "CheckInItem", "Unknown Item", success, true},
		{"check-in-item without a user", "CheckInItem", "Unknown Item", schema.Permanent, false},
		{"cancel-request-item", "CancelRequestItem", "Unknown Request", success, true},
		{"cancel-request-item", "CancelRequestItem", "Request Already Processed", schema.Permanent, false},
		// In what is only looked up before:
		{"request-item", "LookupUser", "Temporary Processing Failure", schema.Temporary, false},
		{"request-item", "LookupUser", "Unknown User", schema.Permanent, false},
		{"request-item", "LookupItem", "Unknown Request", success, false},
		{"request-item", "LookupItem", "Unknown Item", success, false},
		{"request-item", "LookupItem", "Unsupported Service", schema.Permanent, false},
	} {
		env, ok := effects[c.action]
		if !ok {
			env = map[string]schema.Envelope{
				"lookup-user":                  job("lookup-user", `{"user":{"value":"2001"}}`),
				"lookup-item":                  job("lookup-item", `{"item":{"value":"39001"}}`),
				"check-in-item without a user": job("check-in-item", `{"item":{"value":"39002"}}`),
			}[c.action]
		}
		s, h := setup(t, nciptest.Options{})
		s.Lend(nciptest.Loan{Item: "39002", User: "2001", Due: now.AddDate(0, 0, 7)})
		s.Fail(c.service, 1, nciptest.Problem{Type: c.problem, Detail: "in words"})
		got, err := handle(t, h, env)
		switch {
		case c.kind == success && (err != nil || strings.Contains(got, `"already":true`) != c.already):
			t.Errorf("%s, %s %q: reported %s, error %v", c.action, c.service, c.problem, got, err)
		case c.kind != success:
			var problems *ncip.ProblemError
			wantKind(t, err, c.kind, c.service+": "+c.problem)
			if !errors.As(err, &problems) || problems.Service != c.service || problems.Problems[0].Detail != "in words" {
				t.Errorf("%s %q: error %#v", c.service, c.problem, err)
			}
			if c.problem == "Unsupported Service" && c.action == "request-item" && !strings.Contains(fmt.Sprint(err), "leave it out of look_ups") {
				t.Errorf("error %v has no hint", err)
			}
		}
	}
}

func TestProblems_that_are_several(t *testing.T) {
	t.Parallel()
	p := func(kind string) string { return "<Problem><ProblemType>" + kind + "</ProblemType></Problem>" }
	for body, kind := range map[string]schema.ErrorKind{
		p("Temporary Processing Failure"): schema.Temporary, // beside the service
		"<LookupUserResponse>" + p("Temporary Processing Failure") + p("User Blocked") + "</LookupUserResponse>":                 schema.Permanent,
		"<LookupUserResponse>" + p("Temporary Processing Failure") + p("Temporary Processing Failure") + "</LookupUserResponse>": schema.Temporary,
		"<ItemRequestedResponse>" + p("x") + "</ItemRequestedResponse>":                                                          schema.Permanent,
		good[len(message):len(good)-len("</NCIPMessage>")] + p("x"):                                                              schema.Permanent,
	} {
		_, err := handle(t, newHandler(t, answering(t, 200, message+body+"</NCIPMessage>")), lookUp)
		wantKind(t, err, kind, "LookupUser: ")
	}
	_, err := handle(t, newHandler(t, answering(t, 200, message+strings.Repeat(p(strings.Repeat("x", 900)), 100)+"</NCIPMessage>")), lookUp)
	wantKind(t, err, schema.Permanent, "...; ")
	if n := len(fmt.Sprint(err)); n > 2000 {
		t.Errorf("an error of %d bytes", n)
	}
}

// A failed look after a problem must not make the problem final: it may mean that all is done.
func TestProblem_whose_meaning_cannot_be_looked_up_now(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{}, lookUps("item"))
	s.LoseAnswer("RequestItem", 1)
	if _, err := handle(t, h, effects["request-item"]); err == nil {
		t.Fatal("the answer was not lost")
	}
	s.Fail("LookupItem", 1, nciptest.Problem{Type: "Unknown Request"}) // as from a copy that lags behind
	s.Fail("LookupItem", 1, nciptest.Problem{Type: "Temporary Processing Failure"})
	_, err := handle(t, h, effects["request-item"])
	wantKind(t, err, schema.Temporary, "after RequestItem: Duplicate Request")
	if got := must(t, h, effects["request-item"]); !strings.Contains(got, `"already":true`) {
		t.Errorf("reported %s", got)
	}
}
