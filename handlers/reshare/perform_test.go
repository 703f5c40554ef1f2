package reshare_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

// world is a fresh ReShare; its state is what both libraries have.
func world(t testing.TB) func() handlertest.World {
	return func() handlertest.World {
		g := open(t, resharetest.Config{})
		return handlertest.World{
			Handler: func() handlers.Handler { return newTarget(t, g.config()) },
			State:   func() any { return append(g.Requests("east"), g.Requests("west")...) },
		}
	}
}

func perform(which reshare.Which, action, params string, opts ...schema.Option) schema.Envelope {
	return job(reshare.ActionPerform, reshare.PerformArgs{Which: which, Action: action, ActionParams: json.RawMessage(params)}, opts...)
}

// lend makes a request of east, and returns its id there and in west.
func lend(t testing.TB, g *gateway, h handlers.Handler) (east, west string) {
	t.Helper()
	east = must[reshare.Created](t, h, job(reshare.ActionCreate, book(), schema.WithKey("loan-1"))).ID
	return east, g.Requests("west")[0].ID
}

func inWest() schema.Option { return schema.WithTenant("west") }

func TestPerform_takes_a_loan_from_end_to_end(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, west := lend(t, g, h)
	for _, step := range []struct {
		tenant, id, action, params, state string
	}{
		{"west", west, "respondYes", `{"callnumber":"F 12","pickLocation":"Main"}`, "RES_NEW_AWAIT_PULL_SLIP"},
		{"west", west, "supplierPrintPullSlip", "", "RES_AWAIT_PICKING"},
		{"west", west, "supplierCheckInToReshare", `{"itemBarcodes":[{"itemId":"123"}]}`, "RES_AWAIT_SHIP"},
		{"west", west, "supplierMarkShipped", "{}", "RES_ITEM_SHIPPED"},
		{"east", east, "requesterReceived", "null", "REQ_CHECKED_IN"},
		{"east", east, "patronReturnedItem", "", "REQ_AWAITING_RETURN_SHIPPING"},
		{"east", east, "shippedReturn", "", "REQ_SHIPPED_TO_SUPPLIER"},
		{"west", west, "supplierCheckOutOfReshare", "", "RES_COMPLETE"},
	} {
		env := perform(reshare.Which{ID: step.id}, step.action, step.params, schema.WithTenant(step.tenant))
		done := must[reshare.Performed](t, h, env)
		if done.State != step.state || done.AlreadyDone || done.Action != step.action || done.ID != step.id {
			t.Errorf("%s: %+v", step.action, done)
		}
		if again := must[reshare.Performed](t, h, env); !again.AlreadyDone {
			t.Errorf("%s was done again: %+v", step.action, again)
		}
	}
	if state := g.Requests("east")[0].State; state != "REQ_REQUEST_COMPLETE" {
		t.Errorf("east ends in %s", state)
	}
	// However late it comes.
	if late := must[reshare.Performed](t, h, perform(byKey("loan-1"), "requesterReceived", "")); !late.AlreadyDone || late.State != "REQ_REQUEST_COMPLETE" {
		t.Errorf("late repeat %+v", late)
	}
}

func TestPerform_sends_what_it_must_and_no_more(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	g.seen()
	must[reshare.Performed](t, h, perform(byKey("loan-1"), "requesterCancel", `{"reason":"patron_requested"}`))
	one := "/rs/patronrequests/" + east
	if got, want := g.seen(), []string{"GET /rs/patronrequests", "GET " + one, "GET " + one + "/validActions", "POST " + one + "/performAction", "GET " + one}; !slices.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	must[reshare.Performed](t, h, perform(reshare.Which{ID: east}, "requesterCancel", `{"reason":"patron_requested"}`))
	if got, want := g.seen(), []string{"GET " + one}; !slices.Equal(got, want) {
		t.Errorf("requests of the repeat %v, want %v", got, want)
	}
}

// What is not valid, and cannot be shown to be done, is for people: with the reason, and without a trace in the request.
func TestPerform_of_an_action_that_is_not_valid(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	_, err := run(t, h, perform(reshare.Which{ID: east}, "requesterReceived", ""))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "REQ_REQUEST_SENT_TO_SUPPLIER", "requesterReceived is not valid", "REQ_CHECKED_IN", "message, requesterCancel")
	if got := g.seen(); slices.Contains(got, "POST /rs/patronrequests/"+east+"/performAction") {
		t.Errorf("it was sent all the same: %v", got)
	}
}

func TestPerform_while_a_message_is_on_its_way(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	g.SetBusy("east", east, true)
	for _, env := range []schema.Envelope{
		perform(reshare.Which{ID: east}, "requesterCancel", ""),                  // seen before it is sent
		perform(reshare.Which{ID: east}, "message", `{"note":"are you there?"}`), // mod-rs says so
	} {
		_, err := run(t, h, env)
		wantKind(t, err, schema.Temporary)
		wantText(t, err, "Waiting")
	}
	g.SetBusy("east", east, false)
	must[reshare.Performed](t, h, perform(reshare.Which{ID: east}, "requesterCancel", ""))
}

func TestPerform_sends_a_message_once(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	for i := range 3 {
		if done := must[reshare.Performed](t, h, perform(reshare.Which{ID: east}, "message", `{"note":"please hurry"}`)); done.AlreadyDone != (i > 0) {
			t.Errorf("run %d: %+v", i, done)
		}
	}
	must[reshare.Performed](t, h, perform(reshare.Which{ID: east}, "message", `{"note":"never mind"}`))
	if got := g.Requests("east")[0].Messages; !slices.Equal(got, []string{"please hurry", "never mind"}) {
		t.Errorf("messages %q", got)
	}
	_, err := run(t, h, perform(reshare.Which{ID: east}, "message", `{}`))
	wantKind(t, err, schema.Permanent)
}

func TestPerform_of_actions_that_leave_no_proof(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	_, west := lend(t, g, h)
	args := reshare.PerformArgs{Which: reshare.Which{ID: west}, Action: "supplierAddCondition"}
	_, err := run(t, h, job(reshare.ActionPerform, args, inWest()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "nothing is known that proves supplierAddCondition", "reaches", "repeatable")

	args.Repeatable = true // then mod-rs says what it thinks of it
	_, err = run(t, h, job(reshare.ActionPerform, args, inWest()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "answered 400", "A valid action was not supplied")

	must[reshare.Performed](t, h, perform(reshare.Which{ID: west}, "localNote", `{"localNote":"look behind the shelf"}`, inWest()))

	args = reshare.PerformArgs{Which: reshare.Which{ID: west}, Action: "goSwimming", Reaches: []string{"RES_IDLE"}}
	if done := must[reshare.Performed](t, h, job(reshare.ActionPerform, args, inWest())); !done.AlreadyDone {
		t.Errorf("a state that the publisher names proves it: %+v", done)
	}
}

func TestPerform_when_a_cancel_is_answered(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	_, west := lend(t, g, h)
	must[reshare.Performed](t, h, perform(byKey("loan-1"), "requesterCancel", ""))
	respond := perform(reshare.Which{ID: west}, "supplierRespondToCancel", `{"cancelResponse":"yes"}`, inWest())
	must[reshare.Performed](t, h, respond)
	if again := must[reshare.Performed](t, h, respond); !again.AlreadyDone || again.State != "RES_CANCELLED" {
		t.Errorf("again %+v", again)
	}
	if again := must[reshare.Performed](t, h, perform(byKey("loan-1"), "requesterCancel", "")); !again.AlreadyDone || again.State != "REQ_CANCELLED" {
		t.Errorf("again %+v", again)
	}
	_, err := run(t, h, perform(reshare.Which{ID: west}, "supplierRespondToCancel", `{"cancelResponse":"no"}`, inWest()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "RES_CANCELLED", "does not have Cancellation denied")
}

// A cancel that was denied leads back to where the request was: the action that asked for it is valid again, and the
// history of the first one proves nothing about the second.
func TestPerform_when_a_cancel_is_denied_twice(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	_, west := lend(t, g, h)
	deny := perform(reshare.Which{ID: west}, "supplierRespondToCancel", `{"cancelResponse":"no"}`, inWest())
	for range 2 {
		if asked := must[reshare.Performed](t, h, perform(byKey("loan-1"), "requesterCancel", "")); asked.AlreadyDone || asked.State != "REQ_CANCEL_PENDING" {
			t.Errorf("asked %+v", asked)
		}
		for i := range 2 {
			if denied := must[reshare.Performed](t, h, deny); denied.AlreadyDone != (i > 0) || denied.State != "RES_IDLE" {
				t.Errorf("denied %+v", denied)
			}
		}
	}
}

// REQ_EXPECTS_TO_SUPPLY is also where a request comes without any condition: that alone proves nothing.
func TestPerform_tells_steps_apart(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]bool{"REQ_CONDITIONAL_ANSWER_RECEIVED": true, "REQ_REQUEST_SENT_TO_SUPPLIER": false} {
		g := open(t, resharetest.Config{})
		g.instead("", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/validActions") {
				_, _ = io.WriteString(w, `{"actions":["message"]}`)
				return
			}
			_, _ = io.WriteString(w, `{"id":"a-1","state":{"code":"REQ_EXPECTS_TO_SUPPLY"},"audit":[{"fromStatus":{"code":"`+from+`"},"toStatus":{"code":"REQ_EXPECTS_TO_SUPPLY"}}]}`)
		})
		_, err := run(t, newTarget(t, g.config()), perform(reshare.Which{ID: "a-1"}, "requesterAgreeConditions", ""))
		if (err == nil) != want {
			t.Errorf("after %s: error %v", from, err)
		}
	}
}

func TestPerform_refuses_arguments_that_make_no_sense(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	for payload, want := range map[string]string{
		`{}`: "id: give it",
		`{"id":"a","key":"b","action":"message"}`:                    "and not both",
		`{"id":"../users","action":"shippedReturn"}`:                 "id: is no id",
		`{"id":"a/b","action":"shippedReturn"}`:                      "id: is no id",
		`{"id":"a"}`:                                                 "action: is missing",
		`{"id":"a","action":"x\ny"}`:                                 "action: is missing, or no action",
		`{"id":"a","action":"shippedReturn","actionParams":[]}`:      "actionParams: are no object",
		`{"id":"a","action":"shippedReturn","actionParams":"x"}`:     "actionParams: are no object",
		`{"id":"a","action":"manualClose"}`:                          "nothing is known",
		`{"id":"a","action":"shippedReturn","params":{}}`:            "params",
		`{"id":"a","action":"supplierRespondToCancel","reaches":[]}`: "nothing is known",
		`{"id":"a","action":"goSwimming","reaches":[""]}`:            "reaches: want states",
		`{"id":"a","action":"goSwimming","reaches":["Received"]}`:    "reaches: want states",
		`{"id":"a","action":"supplierMarkConditionsAgreed"}`:         "nothing is known",
	} {
		_, err := run(t, h, job(reshare.ActionPerform, json.RawMessage(payload)))
		wantKind(t, err, schema.Permanent)
		wantText(t, err, want)
	}
	if got := g.seen(); len(got) != 0 {
		t.Errorf("requests %v were made for nothing", got)
	}
}

func TestPerform_on_a_request_that_is_not_there(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	_, err := run(t, h, perform(reshare.Which{ID: "nobody"}, "shippedReturn", ""))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "404", "Not Found")
	_, err = run(t, h, perform(byKey("later"), "shippedReturn", ""))
	wantKind(t, err, schema.Temporary) // the job that makes it may be on its way
	wantText(t, err, reshare.Reference("later"))
}

// The answer is lost: the next attempt finds out that the action was performed.
func TestPerform_when_the_answer_is_lost(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	g.instead("POST /rs/patronrequests/"+east+"/performAction", func(w http.ResponseWriter, r *http.Request) {
		g.Server.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
	env := perform(reshare.Which{ID: east}, "requesterCancel", "")
	_, err := run(t, h, env)
	wantKind(t, err, schema.Temporary)
	if again := must[reshare.Performed](t, h, env); !again.AlreadyDone {
		t.Errorf("again %+v", again)
	}
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func TestPerform_at_the_same_time(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, _ := lend(t, g, h)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := run(t, h, perform(reshare.Which{ID: east}, "message", `{"note":"hello"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := g.Requests("east")[0].Messages; len(got) != 1 {
		t.Errorf("messages %q", got)
	}
}

func TestPerform_may_run_again(t *testing.T) {
	t.Parallel()
	order := schema.WithOrderingKey("loan-1")
	handlertest.CheckIdempotent(t, world(t),
		job(reshare.ActionCreate, book(), schema.WithKey("loan-1"), order),
		perform(byKey("loan-1"), "message", `{"note":"please hurry"}`, schema.WithKey("loan-1/hurry"), order),
		perform(byKey("loan-1"), "requesterCancel", `{"reason":"patron_requested"}`, schema.WithKey("loan-1/cancel"), order),
		job(reshare.ActionGet, reshare.GetArgs{Which: byKey("loan-1")}, schema.WithKey("loan-1/look"), order),
		job(reshare.ActionList, reshare.ListArgs{}, schema.WithKey("loan-1/list"), order),
	)
}
