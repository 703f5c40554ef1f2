package nciptest

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options is what responders differ in. The zero value is a friendly one.
type Options struct {
	// Agency is the responder's own; empty is "LIBRARY".
	Agency string
	// Now is its clock; nil is [time.Now].
	Now func() time.Time
	// LoanPeriod is how long an item is lent, and renewed, if nothing else is desired; 0 is 28 days.
	LoanPeriod time.Duration
	// MaxRenewals is how often; 0 is 2.
	MaxRenewals int
	// RenewFromDue lets a renewal begin when the item is due, so that one can follow another at once. Else it begins now,
	// and one that would not move the date is refused.
	RenewFromDue bool
	// OwnRequestIDs gives requests numbers of the responder's own, and forgets those that they were sent with.
	OwnRequestIDs bool
	// Unsupported are services that it does not have.
	Unsupported []string
}

// A User is somebody who can borrow.
type User struct {
	ID      string
	Name    string
	Blocked bool
}

// An Item can be lent. Those that came with AcceptItem are Foreign, and gone once they are checked in.
type Item struct {
	ID         string
	Record     string // of the catalogue, for requests of a title
	Title      string
	CallNumber string
	Foreign    bool
}

// A Loan is of an item to a user.
type Loan struct {
	Item, User string
	Due        time.Time
	Renewals   int
}

// A Request is of a user for an item or a record. Its status is "In Process", or "Available For Pickup" for an item that
// has come with AcceptItem.
type Request struct {
	ID, Agency         string
	User, Item, Record string
	Type, Status       string
	Pickup             string
	Placed             time.Time
}

// A State is what a responder has in its books, each list in the order of its ids.
type State struct {
	Items    []Item
	Loans    []Loan
	Requests []Request
}

// A Problem is what a service answers in place of data.
type Problem struct{ Type, Detail, Element, Value string }

// Server is a responder. It is an [http.Handler], safe for concurrent use, and each message that it gets is one step: no
// other is handled at the same time.
type Server struct {
	opts Options

	mu       sync.Mutex
	users    map[string]User
	items    map[string]Item
	loans    map[string]Loan
	requests []Request
	numbers  int
	received []Received
	scripts  []script
}

// Received is a message that the server got.
type Received struct {
	Service string
	Header  http.Header
	Body    []byte
}

// script is what becomes of the next messages for a service.
type script struct {
	service string
	times   int
	problem *Problem
	lose    bool
	instead http.HandlerFunc
}

// New returns a responder with empty books.
func New(o Options) *Server {
	if o.Agency == "" {
		o.Agency = "LIBRARY"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LoanPeriod == 0 {
		o.LoanPeriod = 28 * 24 * time.Hour
	}
	if o.MaxRenewals == 0 {
		o.MaxRenewals = 2
	}
	return &Server{opts: o, users: map[string]User{}, items: map[string]Item{}, loans: map[string]Loan{}}
}

// AddUser enters a user, or changes one.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[u.ID] = u
}

// AddItem enters an item, or changes one.
func (s *Server) AddItem(i Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[i.ID] = i
}

// Lend enters a loan, as if it had been made at the desk.
func (s *Server) Lend(l Loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loans[l.Item] = l
}

// AddRequest enters a request, as if it had been made elsewhere.
func (s *Server) AddRequest(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

// Fail makes the next n messages for a service fail with a problem, without an effect.
func (s *Server) Fail(service string, n int, p Problem) {
	s.script(script{service: service, times: n, problem: &p})
}

// LoseAnswer makes the next n messages for a service take effect, and cuts the connection before the answer.
func (s *Server) LoseAnswer(service string, n int) {
	s.script(script{service: service, times: n, lose: true})
}

// Intercept answers the next n messages for a service with h, without an effect.
func (s *Server) Intercept(service string, n int, h http.HandlerFunc) {
	s.script(script{service: service, times: n, instead: h})
}

func (s *Server) script(next script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts = append(s.scripts, next)
}

// Received returns all messages so far.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// Asked returns the services that were asked for so far.
func (s *Server) Asked() []string {
	var list []string
	for _, r := range s.Received() {
		list = append(list, r.Service)
	}
	return list
}

// State returns the books.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st State
	for _, i := range s.items {
		st.Items = append(st.Items, i)
	}
	for _, l := range s.loans {
		st.Loans = append(st.Loans, l)
	}
	st.Requests = slices.Clone(s.requests)
	slices.SortFunc(st.Items, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(st.Loans, func(a, b Loan) int { return strings.Compare(a.Item, b.Item) })
	slices.SortFunc(st.Requests, func(a, b Request) int { return strings.Compare(a.ID, b.ID) })
	return st
}

// maxMessage is more than any message has.
const maxMessage = 1 << 20

// ServeHTTP answers one message.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "post a message", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		http.Error(w, "the message is too long or broke off", http.StatusBadRequest)
		return
	}
	answer, now := s.serve(r, body)
	switch {
	case now.instead != nil:
		now.instead(w, r)
	case now.lose:
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("Content-Type", `application/xml; charset="utf-8"`)
		_, _ = io.WriteString(w, answer)
	}
}

func (s *Server) serve(r *http.Request, body []byte) (answer string, now script) {
	root, err := check(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.received = append(s.received, Received{"", r.Header.Clone(), body})
		return envelope(problem(Problem{Type: "Invalid Message Syntax Error", Detail: err.Error()})), script{}
	}
	m := root.Children[0]
	service := m.XMLName.Local
	s.received = append(s.received, Received{service, r.Header.Clone(), body})
	if now = s.next(service); now.instead != nil {
		return "", now
	}
	var data string
	var p *Problem
	handle := services[service]
	switch {
	case now.problem != nil:
		p = now.problem
	case handle == nil || slices.Contains(s.opts.Unsupported, service):
		p = &Problem{Type: "Unsupported Service", Element: service}
	case m.child("InitiationHeader") == nil:
		p = &Problem{Type: "Needed Data Missing", Element: "InitiationHeader"}
	default:
		data, p = handle(s, m)
	}
	if p != nil {
		data = problem(*p)
	}
	header := element("ResponseHeader", element("FromAgencyId", leaf("AgencyId", s.opts.Agency)),
		element("ToAgencyId", leaf("AgencyId", m.value("InitiationHeader", "FromAgencyId", "AgencyId"))))
	if m.child("InitiationHeader") == nil {
		header = ""
	}
	return envelope(element(service+"Response", header, data)), now
}

// next returns what was scripted for a service, if anything. The server is locked.
func (s *Server) next(service string) script {
	for i, sc := range s.scripts {
		if sc.service == service && sc.times > 0 {
			s.scripts[i].times--
			return sc
		}
	}
	return script{}
}

func problem(p Problem) string {
	return element("Problem", leaf("ProblemType", p.Type), leaf("ProblemDetail", p.Detail), leaf("ProblemElement", p.Element), leaf("ProblemValue", p.Value))
}

func envelope(content string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<ns1:NCIPMessage xmlns:ns1="` + Namespace + `" ns1:version="http://www.niso.org/schemas/ncip/v2_02/ncip_v2_02.xsd">` + content + "</ns1:NCIPMessage>\n"
}

func element(name string, content ...string) string {
	return fmt.Sprintf("<ns1:%s>%s</ns1:%s>", name, strings.Join(content, ""), name)
}

// leaf leaves out what is empty.
func leaf(name, text string) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
	return element(name, b.String())
}

func stamp(name string, t time.Time) string { return leaf(name, t.UTC().Format(time.RFC3339)) }
