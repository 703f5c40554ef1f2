package resharetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// request is a patron request of one tenant: the requester's, or the supplier's view of it.
type request struct {
	tenant    string
	id        string
	requester bool
	state     string
	before    string   // the state before a cancel was asked for
	busy      bool     // a message to the other library waits to be sent
	peer      *request // what the other library has
	rota      []string // tenants that were not asked yet
	fields    map[string]any
	audit     []entry
	notes     []string // messages that were sent to the other library
}

// entry is a line of a request's history.
type entry struct {
	From, To, Message string
}

// A Request is a patron request as a tenant has it.
type Request struct {
	ID        string
	Requester bool
	Reference string // the patronReference
	Title     string
	State     string
	Messages  []string // sent to the other library
	History   []string // of states, as "REQ_IDLE -> REQ_VALIDATED"
}

// Requests returns what a tenant has, the oldest first.
func (s *Server) Requests(tenant string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Request{}
	for _, r := range s.requests {
		if r.tenant != tenant {
			continue
		}
		seen := Request{ID: r.id, Requester: r.requester, Reference: r.text("patronReference"), Title: r.text("title"), State: r.state, Messages: slices.Clone(r.notes)}
		for _, e := range r.audit {
			if e.From != e.To {
				seen.History = append(seen.History, e.From+" -> "+e.To)
			}
		}
		list = append(list, seen)
	}
	return list
}

// SetBusy says whether a message of the request waits to be sent; until it is sent no action is valid.
func (s *Server) SetBusy(tenant, id string, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(tenant, id); r != nil {
		r.busy = busy
	}
}

func (r *request) text(field string) string {
	text, _ := r.fields[field].(string)
	return text
}

// move changes the state and says so in the history.
func (r *request) move(to, message string) {
	r.audit = append(r.audit, entry{r.state, to, message})
	r.state = to
}

// fields are those of a PatronRequest that a client may set here; the others, id among them, are ignored as Grails does.
var fields = strings.Fields(`patronReference patronIdentifier patronSurname patronGivenName patronType patronEmail patronNote sendToPatron
	systemInstanceIdentifier bibliographicRecordId supplierUniqueRecordId title subtitle author edition publisher placeOfPublication
	publicationDate publicationType sponsoringBody volume issue startPage numberOfPages pagesRequested titleOfComponent
	authorOfComponent publicationDateOfComponent sponsor informationSource isbn issn eissn doi oclcNumber serviceType serviceLevel
	copyrightType deliveryMethod deliveryAddress returnAddress pickupLocation pickupLocationCode pickupLocationSlug pickupURL neededBy
	maximumCostsMonetaryValue maximumCostsCurrencyCode requestingInstitutionSymbol localNote tags`)

// create makes a request, answers, and lets it go as far as it goes by itself.
func (s *Server) create(w http.ResponseWriter, r *http.Request, tenant Tenant) {
	var posted map[string]any
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&posted); err != nil {
		answer(w, http.StatusUnprocessableEntity, map[string]any{"message": "Could not parse the request"})
		return
	}
	if title, given := posted["title"]; given && title == "" {
		answer(w, http.StatusUnprocessableEntity, map[string]any{"message": "Property [title] of class [class org.olf.rs.PatronRequest] cannot be blank"})
		return
	}
	requester, _ := posted["isRequester"].(bool)
	made := s.add(tenant.Name, requester, "REQ_IDLE", posted)
	answer(w, http.StatusCreated, made.full())
	made.fields["hrid"] = fmt.Sprintf("%s-%d", strings.ToUpper(tenant.Name), len(s.requests))
	switch {
	case !requester:
	case made.text("patronIdentifier") == "":
		made.move("REQ_INVALID_PATRON", "Failed to validate patron")
	case made.text("systemInstanceIdentifier") == "":
		made.move("REQ_BLANK_FORM_REVIEW", "Blank Request Form, needs review")
	default:
		made.move("REQ_VALIDATED", "Request validated")
		if _, ok := s.tenant(tenant.Supplier); !ok {
			made.move("REQ_END_OF_ROTA", "Unable to locate lenders")
			return
		}
		made.move("REQ_SUPPLIER_IDENTIFIED", "Ratio-Ranked lending string calculated")
		made.rota = append([]string{tenant.Supplier}, tenant.Rota...)
		s.sendOn(made)
	}
}

// sendOn sends the request to the next library, if one is left.
func (s *Server) sendOn(r *request) {
	if len(r.rota) == 0 {
		r.move("REQ_END_OF_ROTA", "End of rota")
		return
	}
	r.move("REQ_REQUEST_SENT_TO_SUPPLIER", "Sent to next lender")
	r.peer = s.add(r.rota[0], false, "RES_IDLE", r.fields)
	r.peer.peer, r.rota = r, r.rota[1:]
}

func (s *Server) add(tenant string, requester bool, state string, from map[string]any) *request {
	r := &request{
		tenant: tenant, id: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(s.requests)+1), requester: requester, state: state, fields: map[string]any{},
	}
	for _, name := range fields {
		if value, ok := from[name]; ok {
			r.fields[name] = value
		}
	}
	if hrid, ok := from["hrid"]; ok && !requester {
		r.fields["hrid"] = hrid
	}
	s.requests = append(s.requests, r)
	return r
}

// brief is the request as it stands in lists.
func (r *request) brief() map[string]any {
	view := map[string]any{"id": r.id, "isRequester": r.requester, "state": map[string]any{"code": r.state}, "volumes": []any{}}
	for name, value := range r.fields {
		view[name] = value
	}
	return view
}

// full is the request as it stands alone.
func (r *request) full() map[string]any {
	view := r.brief()
	history := []map[string]any{}
	for i, e := range r.audit {
		history = append(history, map[string]any{
			"auditNo": i + 1, "message": e.Message, "fromStatus": map[string]any{"code": e.From}, "toStatus": map[string]any{"code": e.To},
			"showInAuditTrail": true,
		})
	}
	valid := []map[string]any{}
	for _, action := range r.valid() {
		valid = append(valid, map[string]any{"actionCode": action})
	}
	view["audit"], view["validActions"] = history, valid
	if r.busy {
		view["networkStatus"] = "Waiting"
	}
	return view
}

// list searches as SimpleLookupService does, for what it knows: term with match, and filters of the form field==value.
func (s *Server) list(w http.ResponseWriter, r *http.Request, tenant Tenant) {
	query := r.URL.Query()
	found := []map[string]any{}
	for _, candidate := range s.requests {
		if candidate.tenant == tenant.Name && candidate.matches(query.Get("term"), query["match"], query["filters"]) {
			found = append(found, candidate.brief())
		}
	}
	if slices.Contains(query["sort"], "dateCreated;desc") {
		slices.Reverse(found)
	}
	perPage := min(number(query.Get("perPage"), number(query.Get("max"), 10)), 100)
	page := number(query.Get("page"), 1)
	total := len(found)
	from := min((page-1)*perPage, total)
	found = found[from:min(from+perPage, total)]
	if query.Get("stats") != "true" {
		answer(w, http.StatusOK, found)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"results": found, "pageSize": perPage, "page": page, "totalPages": (total + perPage - 1) / perPage, "meta": map[string]any{},
		"totalRecords": total, "total": total,
	})
}

func number(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func (r *request) matches(term string, match, filters []string) bool {
	value := func(field string) string {
		switch field {
		case "id":
			return r.id
		case "isRequester":
			return strconv.FormatBool(r.requester)
		case "state.code":
			return r.state
		}
		return r.text(field)
	}
	if term != "" && len(match) > 0 && !slices.ContainsFunc(match, func(field string) bool {
		for word := range strings.FieldsSeq(term) { // each of them, anywhere, in any case
			if !strings.Contains(strings.ToLower(value(field)), strings.ToLower(word)) {
				return false
			}
		}
		return true
	}) {
		return false
	}
	return !slices.ContainsFunc(filters, func(filter string) bool {
		field, want, ok := strings.Cut(filter, "==")
		return !ok || value(field) != want
	})
}
