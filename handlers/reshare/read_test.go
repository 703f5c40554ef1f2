package reshare_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

func TestGet_reports_a_request_and_what_may_be_done_with_it(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	east, west := lend(t, g, h)
	got := must[reshare.Got](t, h, job(reshare.ActionGet, reshare.GetArgs{Which: byKey("loan-1")}))
	if got.ID != east || got.State != "REQ_REQUEST_SENT_TO_SUPPLIER" || !slices.Equal(got.ValidActions, []string{"message", "requesterCancel"}) ||
		got.Title != "Middlemarch" || got.PatronIdentifier != "ada" || got.HRID == "" {
		t.Errorf("got %+v", got)
	}
	got = must[reshare.Got](t, h, job(reshare.ActionGet, reshare.GetArgs{Which: reshare.Which{ID: west}}, inWest()))
	if got.IsRequester || got.State != "RES_IDLE" || !slices.Contains(got.ValidActions, "respondYes") {
		t.Errorf("got %+v", got)
	}
	_, err := run(t, h, job(reshare.ActionGet, reshare.GetArgs{Which: reshare.Which{ID: west}})) // it is west's
	wantKind(t, err, schema.Permanent)
	_, err = run(t, h, job(reshare.ActionGet, reshare.GetArgs{}))
	wantKind(t, err, schema.Permanent)
}

// The request goes from west, which cannot supply, to south, and is waited for meanwhile.
func TestGet_waits_while_a_request_is_in_a_state(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{Tenants: []resharetest.Tenant{
		{Name: "east", Username: "bridge", Password: eastPassword, Supplier: "west", Rota: []string{"south"}},
		{Name: "west", Username: "westbridge", Password: westPassword},
		{Name: "south"},
	}})
	h := newTarget(t, g.config())
	_, west := lend(t, g, h)
	look := job(reshare.ActionGet, reshare.GetArgs{Which: byKey("loan-1"), While: []string{"REQ_IDLE", "REQ_REQUEST_SENT_TO_SUPPLIER"}, Every: "1h30m"})
	decline := job(reshare.ActionPerform, reshare.PerformArgs{Which: reshare.Which{ID: west}, Action: "supplierCannotSupply"}, inWest())
	for range 2 {
		report, err := run(t, h, look)
		if wait, ok := schema.SnoozeOf(err); !ok || wait != 90*time.Minute || report != nil {
			t.Errorf("it reports %s, and waits for %v: %v", report, wait, err)
		}
		wantText(t, err, "is still REQ_REQUEST_SENT_TO_SUPPLIER")
		must[reshare.Performed](t, h, decline)
	}
	if asked := g.Requests("south"); len(asked) != 1 || asked[0].State != "RES_IDLE" {
		t.Errorf("south has %+v", asked)
	}
	_, err := run(t, h, job(reshare.ActionGet, json.RawMessage(`{"key":"loan-1","while":["REQ_REQUEST_SENT_TO_SUPPLIER"]}`)))
	if wait, _ := schema.SnoozeOf(err); wait != 10*time.Minute {
		t.Errorf("it waits for %v: %v", wait, err)
	}
	must[reshare.Performed](t, h, job(reshare.ActionPerform, reshare.PerformArgs{Which: byKey("loan-1"), Action: "requesterCancel"}))
	if got := must[reshare.Got](t, h, look); got.State != "REQ_CANCEL_PENDING" {
		t.Errorf("got %+v", got)
	}
	for _, every := range []string{"soon", "0s", "-1m", "25h"} {
		_, err := run(t, h, job(reshare.ActionGet, reshare.GetArgs{Which: byKey("loan-1"), Every: every}))
		wantKind(t, err, schema.Permanent)
		wantText(t, err, "every: ")
	}
}

func TestList_searches(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	for _, title := range []string{"Middlemarch", "Silas Marner", "Adam Bede"} {
		must[reshare.Created](t, h, job(reshare.ActionCreate, reshare.CreateArgs{PatronIdentifier: "ada", Title: title}))
	}
	for _, c := range []struct {
		args  reshare.ListArgs
		total int
		first string
	}{
		{reshare.ListArgs{}, 3, "Middlemarch"},
		{reshare.ListArgs{Term: "marner", Match: []string{"title"}}, 1, "Silas Marner"},
		{reshare.ListArgs{Term: "mar", Match: []string{"title", "author"}, Sort: []string{"dateCreated;desc"}}, 2, "Silas Marner"},
		{reshare.ListArgs{Filters: []string{"isRequester==true", "state.code==REQ_BLANK_FORM_REVIEW"}, Page: 3, PerPage: 1}, 3, "Adam Bede"},
		{reshare.ListArgs{Filters: []string{"state.code==REQ_SHIPPED"}}, 0, ""},
	} {
		got := must[reshare.Listed](t, h, job(reshare.ActionList, c.args))
		if first := append(got.Requests, reshare.Request{})[0].Title; got.Total != c.total || first != c.first {
			t.Errorf("%+v: %d, the first is %q", c.args, got.Total, first)
		}
	}
	for payload, want := range map[string]string{
		`{"term":"x"}`:                 "term: goes together",
		`{"match":["title"]}`:          "term: goes together",
		`{"page":-1}`:                  "page: is negative",
		`{"perPage":101}`:              "perPage",
		`{"perPage":-1}`:               "perPage",
		`{"query":"cql.allRecords=1"}`: "query",
	} {
		_, err := run(t, h, job(reshare.ActionList, json.RawMessage(payload)))
		wantKind(t, err, schema.Permanent)
		wantText(t, err, want)
	}
}
