package httprelay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeILS has patrons' holds, kept as Koha, FOLIO and PAIA show them: see docs/targets/http.md for what each part is from.
type fakeILS struct {
	mu     sync.Mutex
	next   int
	holds  []hold
	tokens map[string]bool
	issued int
}

type hold struct {
	ID           int
	Patron, Item string
	Status       int // of PAIA
}

// State is what runs have changed, without ids.
func (f *fakeILS) State() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []string{}
	for _, h := range f.holds {
		list = append(list, h.Patron+" holds "+h.Item)
	}
	slices.Sort(list)
	return list
}

// place returns false if there is one already.
func (f *fakeILS) place(patron, item string) (hold, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.holds {
		if h.Patron == patron && h.Item == item {
			return h, false
		}
	}
	f.next++
	h := hold{f.next, patron, item, 1}
	f.holds = append(f.holds, h)
	return h, true
}

func (f *fakeILS) cancel(match func(hold) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.holds)
	f.holds = slices.DeleteFunc(f.holds, match)
	return len(f.holds) < n
}

func (f *fakeILS) of(patron string) []hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.holds), func(h hold) bool { return h.Patron != patron })
}

// expire ends all tokens, as a restart of the ILS does.
func (f *fakeILS) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.tokens)
}

// strict decodes a body as an API does that takes no other fields.
func strict(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func (f *fakeILS) koha() http.HandlerFunc {
	fault := func(w http.ResponseWriter, status int, text string) {
		answer(w, status, map[string]string{"error": text})
	}
	shown := func(h hold) map[string]any {
		var patron, biblio int
		_, _ = fmt.Sscan(h.Patron, &patron)
		_, _ = fmt.Sscan(h.Item, &biblio)
		return map[string]any{"hold_id": h.ID, "patron_id": patron, "biblio_id": biblio, "item_id": nil, "status": nil}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/oauth/token", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("grant_type") != "client_credentials" {
			fault(w, 400, "Unimplemented grant type")
			return
		}
		if r.PostFormValue("client_id") != "millbridge" || r.PostFormValue("client_secret") != "koha-client-secret" {
			fault(w, 403, "unauthorized_client")
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.issued++
		token := fmt.Sprintf("koha-token-%d", f.issued)
		if f.tokens == nil {
			f.tokens = map[string]bool{}
		}
		f.tokens["Bearer "+token] = true
		answer(w, 200, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	})
	authorized := func(handle http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			ok := f.tokens[r.Header.Get("Authorization")]
			f.mu.Unlock()
			if !ok {
				fault(w, 401, "Authentication failure.")
				return
			}
			handle(w, r)
		}
	}
	mux.HandleFunc("GET /api/v1/holds", authorized(func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, h := range f.of(r.URL.Query().Get("patron_id")) {
			if h.Item == r.URL.Query().Get("biblio_id") {
				list = append(list, shown(h))
			}
		}
		answer(w, 200, list)
	}))
	mux.HandleFunc("POST /api/v1/holds", authorized(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Patron *int    `json:"patron_id"`
			Biblio *int    `json:"biblio_id"`
			Pickup *string `json:"pickup_library_id"`
			Notes  *string `json:"notes"`
		}
		switch err := strict(r, &in); {
		case err != nil || in.Patron == nil || in.Pickup == nil:
			fault(w, 400, "Bad request")
		case in.Biblio == nil:
			fault(w, 400, "At least one of biblio_id, item_id should be given")
		case *in.Pickup != "CPL":
			fault(w, 400, "The supplied pickup location is not valid")
		default:
			h, placed := f.place(fmt.Sprint(*in.Patron), fmt.Sprint(*in.Biblio))
			if !placed {
				fault(w, 403, "Hold cannot be placed. Reason: tooManyHoldsForThisRecord")
				return
			}
			answer(w, 201, shown(h))
		}
	}))
	mux.HandleFunc("DELETE /api/v1/holds/{id}", authorized(func(w http.ResponseWriter, r *http.Request) {
		if !f.cancel(func(h hold) bool { return fmt.Sprint(h.ID) == r.PathValue("id") }) {
			fault(w, 404, "Hold not found")
			return
		}
		w.WriteHeader(204)
	}))
	return mux.ServeHTTP
}

func (f *fakeILS) folio() http.HandlerFunc {
	fault := func(w http.ResponseWriter, status int, text string) {
		answer(w, status, map[string]any{"code": status, "errorMessage": text})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /patron/account/{patron}", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, h := range f.of(r.PathValue("patron")) {
			list = append(list, map[string]any{"requestId": fmt.Sprint("request-", h.ID), "item": map[string]string{"itemId": h.Item}, "status": "Open - Not yet filled"})
		}
		account := map[string]any{"totalHolds": len(list), "holds": []any{}, "loans": []any{}, "charges": []any{}}
		if r.URL.Query().Get("includeHolds") == "true" {
			account["holds"] = list
		}
		answer(w, 200, account)
	})
	mux.HandleFunc("POST /patron/account/{patron}/item/{item}/hold", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Item struct {
				ID string `json:"itemId"`
			} `json:"item"`
			Date   string `json:"requestDate"`
			Pickup string `json:"pickupLocationId"`
		}
		if err := strict(r, &in); err != nil || in.Pickup == "" || in.Item.ID != r.PathValue("item") {
			fault(w, 400, "unable to process request -- constraint violation")
			return
		}
		h, placed := f.place(r.PathValue("patron"), r.PathValue("item"))
		if !placed {
			fault(w, 422, "This requester already has an open request for this item")
			return
		}
		answer(w, 201, map[string]any{"requestId": fmt.Sprint("request-", h.ID), "item": in.Item, "status": "Open - Not yet filled"})
	})
	mux.HandleFunc("POST /patron/account/{patron}/item/{item}/renew", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 201, map[string]any{"id": "loan-1", "dueDate": "2525-01-01T11:12:00Z"})
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "apikey folio-key-secret" {
			fault(w, 401, "Access Denied")
			return
		}
		mux.ServeHTTP(w, r)
	}
}

func (f *fakeILS) paia() http.HandlerFunc {
	type doc struct {
		Status int    `json:"status"`
		Item   string `json:"item"`
		Error  string `json:"error,omitempty"`
	}
	mux := http.NewServeMux()
	each := func(handle func(patron, item string) doc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var in struct {
				Doc []struct {
					Item string `json:"item"`
				} `json:"doc"`
			}
			if err := strict(r, &in); err != nil || len(in.Doc) == 0 {
				answer(w, 422, map[string]any{"error": "invalid_request", "code": 422})
				return
			}
			var out []doc
			for _, d := range in.Doc {
				if u, err := url.Parse(d.Item); err != nil || u.Scheme == "" {
					out = append(out, doc{5, d.Item, "item URI not found"})
					continue
				}
				out = append(out, handle(r.PathValue("patron"), d.Item))
			}
			answer(w, 200, map[string]any{"doc": out})
		}
	}
	mux.HandleFunc("GET /core/{patron}/items", func(w http.ResponseWriter, r *http.Request) {
		list := []doc{{5, "http://example.org/items/rejected", "lost"}}
		for _, h := range f.of(r.PathValue("patron")) {
			list = append(list, doc{h.Status, h.Item, ""})
		}
		answer(w, 200, map[string]any{"doc": list})
	})
	mux.HandleFunc("POST /core/{patron}/request", each(func(patron, item string) doc {
		if strings.HasSuffix(item, "/rejected") {
			return doc{5, item, "Sorry, we found out that our copy is lost!"}
		}
		h, _ := f.place(patron, item)
		return doc{h.Status, item, ""}
	}))
	mux.HandleFunc("POST /core/{patron}/cancel", each(func(patron, item string) doc {
		f.cancel(func(h hold) bool { return h.Patron == patron && h.Item == item })
		return doc{0, item, ""}
	}))
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer paia-token-secret" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, 401, map[string]any{"error": "invalid_grant"})
			return
		}
		mux.ServeHTTP(w, r)
	}
}

// fakes are the servers for the examples of the page, by the target's name.
func fakes() map[string]func(*fakeILS) http.HandlerFunc {
	return map[string]func(*fakeILS) http.HandlerFunc{"koha": (*fakeILS).koha, "folio": (*fakeILS).folio, "paia": (*fakeILS).paia}
}

func TestFakes_refuse_who_is_not_known(t *testing.T) {
	t.Parallel()
	for name, fake := range fakes() {
		s := newServer(t, fake(new(fakeILS)))
		for _, path := range []string{"/api/v1/holds", "/patron/account/u-7", "/core/7/items"} {
			res, err := s.Client().Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != 401 && res.StatusCode != 404 {
				t.Errorf("%s %s: answered %d", name, path, res.StatusCode)
			}
		}
	}
}
