package reshare_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

func TestCreate_makes_a_request(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	args := book()
	args.NeededBy, args.Tags, args.MaximumCostsMonetaryValue = "2027-01-31", []string{"loan"}, json.Number("12.50")
	made := must[reshare.Created](t, h, job(reshare.ActionCreate, args, schema.WithKey("loan-1")))
	if made.Existing || made.State != "REQ_IDLE" || !made.IsRequester || made.ID == "" || made.PatronReference != reshare.Reference("loan-1") {
		t.Errorf("answer %+v", made)
	}
	if got, want := g.seen(), []string{"POST /authn/login-with-expiry", "GET /rs/patronrequests", "POST /rs/patronrequests"}; !slices.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	if east := g.Requests("east"); len(east) != 1 || east[0].Title != "Middlemarch" || east[0].State != "REQ_REQUEST_SENT_TO_SUPPLIER" {
		t.Errorf("east has %+v", east)
	}
	again := must[reshare.Created](t, h, job(reshare.ActionCreate, args, schema.WithKey("loan-1")))
	if !again.Existing || again.ID != made.ID || again.HRID == "" {
		t.Errorf("answer to the repeat %+v", again)
	}
	if got, want := g.seen(), []string{"GET /rs/patronrequests"}; !slices.Equal(got, want) {
		t.Errorf("requests of the repeat %v, want %v", got, want)
	}
	other := must[reshare.Created](t, h, job(reshare.ActionCreate, args, schema.WithKey("loan-2")))
	if other.Existing || len(g.Requests("east")) != 2 {
		t.Errorf("another key makes another request: %+v", other)
	}
}

// The supplier's view has the same reference, and may be in the same tenant: it is not what was made.
func TestCreate_does_not_take_the_suppliers_view_for_its_own(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{Tenants: []resharetest.Tenant{{Name: "east", Username: "bridge", Password: eastPassword, Supplier: "east"}}})
	h := newTarget(t, g.config())
	env := job(reshare.ActionCreate, book(), schema.WithKey("loan-1"))
	first, again := must[reshare.Created](t, h, env), must[reshare.Created](t, h, env)
	if first.ID != again.ID || !again.IsRequester || len(g.Requests("east")) != 2 {
		t.Errorf("first %+v, again %+v", first, again)
	}
}

// What a search finds is not always what was searched for: mod-rs looks anywhere in the field.
func TestCreate_compares_what_it_finds(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	g.instead("GET /rs/patronrequests", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]map[string]any{
			{"id": "a", "isRequester": true, "patronReference": reshare.Reference("k") + "0"},
			{"id": "b", "isRequester": false, "patronReference": reshare.Reference("k")},
			{"id": "c", "isRequester": true},
		})
	})
	if made := must[reshare.Created](t, newTarget(t, g.config()), job(reshare.ActionCreate, book(), schema.WithKey("k"))); made.Existing {
		t.Errorf("took %+v for its own", made)
	}
}

func TestCreate_refuses_what_is_no_request(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	for payload, want := range map[string]string{
		`{}`:                         "patronIdentifier: is missing",
		`{"patronIdentifier":"ada"}`: "title: is missing",
		`{"patronIdentifier":"ada","title":"x","neededBy":"soon"}`:        "neededBy: is no day",
		`{"patronIdentifier":"ada","title":"x","patronReference":"mine"}`: "patronReference",
		`{"patronIdentifier":"ada","title":"x","isRequester":false}`:      "isRequester",
		`[]`: "want",
	} {
		_, err := run(t, h, job(reshare.ActionCreate, json.RawMessage(payload)))
		wantKind(t, err, schema.Permanent)
		wantText(t, err, want)
	}
	if got := g.seen(); len(got) != 0 {
		t.Errorf("requests %v were made for nothing", got)
	}
}

// A gateway that drops the field would make every repeat a second request.
func TestCreate_says_so_when_the_reference_was_not_taken(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	g.instead("POST /rs/patronrequests", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"x-1","isRequester":true,"state":{"code":"REQ_IDLE"}}`))
	})
	_, err := run(t, newTarget(t, g.config()), job(reshare.ActionCreate, book()))
	wantKind(t, err, schema.Permanent)
	wantText(t, err, "x-1", "without its reference")
}

func TestCreate_at_the_same_time(t *testing.T) {
	t.Parallel()
	g := open(t, resharetest.Config{})
	h := newTarget(t, g.config())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := run(t, h, job(reshare.ActionCreate, book(), schema.WithKey("loan-1"))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(g.Requests("east")); n != 1 {
		t.Errorf("%d requests were made of one job", n)
	}
}

func TestReference_fits_into_a_filter(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, key := range []string{"", "a", "A", "a ", strings.Repeat("ü", 200), "x!(y)=<z>&&\\"} {
		ref := reshare.Reference(key)
		if len(ref) != 35 || strings.Trim(ref, "m-0123456789abcdef") != "" || seen[ref] {
			t.Errorf("reference of %q is %q", key, ref)
		}
		seen[ref] = true
	}
}

func TestCreate_may_run_again(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, world(t), job(reshare.ActionCreate, book(), schema.WithKey("loan-1")),
		job(reshare.ActionCreate, book(), schema.WithKey("loan-2")))
}
