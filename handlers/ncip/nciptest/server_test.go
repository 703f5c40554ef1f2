package nciptest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
)

const (
	open    = `<NCIPMessage xmlns="http://www.niso.org/2008/ncip" xmlns:n="http://www.niso.org/2008/ncip" n:version="http://www.niso.org/schemas/ncip/v2_02/ncip_v2_02.xsd">`
	header  = `<InitiationHeader><FromAgencyId><AgencyId>A</AgencyId></FromAgencyId><ToAgencyId><AgencyId>B</AgencyId></ToAgencyId></InitiationHeader>`
	user    = `<UserId><UserIdentifierValue>2001</UserIdentifierValue></UserId>`
	item    = `<ItemId><ItemIdentifierValue>39001</ItemIdentifierValue></ItemId>`
	foreign = `<ItemId><ItemIdentifierValue>ILL-1</ItemIdentifierValue></ItemId>`
	number  = `<RequestId><RequestIdentifierValue>r</RequestIdentifierValue></RequestId>`
	hold    = `<RequestType>Hold</RequestType><RequestScopeType>Item</RequestScopeType>`
)

// post sends a service's content and returns the answer, which must be as the schema has it.
func post(t *testing.T, s *nciptest.Server, service, content string) string {
	t.Helper()
	body := open + "<" + service + ">" + content + "</" + service + "></NCIPMessage>"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	answer := w.Body.String()
	if err := nciptest.Check([]byte(answer)); err != nil || w.Code != http.StatusOK {
		t.Errorf("%s: answered %d %s: %v", service, w.Code, answer, err)
	}
	return answer
}

func newServer(o nciptest.Options) *nciptest.Server {
	o.Now = func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }
	s := nciptest.New(o)
	s.AddUser(nciptest.User{ID: "2001", Name: "Ada"})
	s.AddUser(nciptest.User{ID: "2002", Blocked: true})
	s.AddItem(nciptest.Item{ID: "39001", Record: "b1", Title: "Emma & Co", CallNumber: "PR"})
	return s
}

// A book's way through a library; each answer is checked against the schema.
func TestServer_keeps_books(t *testing.T) {
	t.Parallel()
	s := newServer(nciptest.Options{})
	other := strings.Replace(user, "2001", "2002", 1)
	elements := `<ItemElementType>Bibliographic Description</ItemElementType><ItemElementType>Circulation Status</ItemElementType><ItemElementType>Hold Queue Length</ItemElementType>` +
		`<ItemElementType>Item Description</ItemElementType><ItemElementType>Date Due</ItemElementType>`
	for _, step := range []struct{ service, content, want string }{
		{"LookupUser", header + user + "<UserElementType>Name Information</UserElementType>", ">Ada<"},
		{"LookupUser", header + other + "<UserElementType>Block Or Trap</UserElementType>", ">Block Checkout<"},
		{"LookupUser", user, ">Needed Data Missing<"},
		{"LookupUser", header + strings.Replace(user, "2001", "9", 1), ">Unknown User<"},
		{"LookupItem", header + item + elements, ">Available On Shelf<"},
		{"LookupItem", header + foreign, ">Unknown Item<"},
		{"LookupItem", header + number, ">Unknown Request<"},
		{"RequestItem", header + other + item + hold, ">User Blocked<"},
		{"RequestItem", header + user + foreign + hold, ">Unknown Item<"},
		{"RequestItem", header + user + item + number + hold, ">39001<"},
		{"RequestItem", header + user + item + number + hold, ">Duplicate Request<"},
		{"LookupItem", header + number, ">39001<"},
		{"CancelRequestItem", header + other + number + hold, ">Unknown Request<"},
		{"CancelRequestItem", header + user + item + hold, ">r<"},
		{"CancelRequestItem", header + user + number + hold, ">Unknown Request<"},
		{"RequestItem", header + user + item + hold, ">R-1<"},
		{"LookupUser", header + user + "<RequestedItemsDesired/>", ">In Process<"},
		{"CheckOutItem", header + other + item, ">User Blocked<"},
		{"CheckOutItem", header + user + item, ">2026-12-28T12:00:00Z<"},
		{"CheckOutItem", header + user + item, ">Item Already Checked Out<"},
		{"LookupUser", header + user + "<LoanedItemsDesired/>", ">Emma &amp; Co<"},
		{"LookupItem", header + item + elements + "<CurrentBorrowerDesired/>", ">On Loan<"},
		{"RenewItem", header + user + item, ">Item Not Renewable<"},
		{"RenewItem", header + user + item + "<DesiredDateDue>2027-01-01T00:00:00Z</DesiredDateDue>", ">2027-01-01T00:00:00Z<"},
		{"RenewItem", header + user + item + "<DesiredDateDue>2027-01-02T00:00:00Z</DesiredDateDue>", ">2<"},
		{"RenewItem", header + user + item, ">Maximum Renewals Exceeded<"},
		{"RenewItem", header + other + item, ">Item Not Checked Out<"},
		{"CheckInItem", header + item, ">2001<"},
		{"CheckInItem", header + item, ">Item Not Checked Out<"},
		{"AcceptItem", header + number + "<RequestedActionType>Hold For Pickup</RequestedActionType>" + user, ">Needed Data Missing<"},
		{"AcceptItem", header + number + "<RequestedActionType>Hold For Pickup</RequestedActionType>" + user + foreign, ">ILL-1<"},
		{"AcceptItem", header + number + "<RequestedActionType>Hold For Pickup</RequestedActionType>" + user + foreign, ">Duplicate Item<"},
		{"CancelRequestItem", header + user + number + hold, ">Request Already Processed<"},
		{"CheckOutItem", header + user + foreign, ">ILL-1<"},
		{"CheckInItem", header + foreign, ">ILL-1<"},
		{"CheckInItem", header + foreign, ">Unknown Item<"},
		{"RenewItem", user + item + header, ">Invalid Message Syntax Error<"},
	} {
		if got := post(t, s, step.service, step.content); !strings.Contains(got, step.want) {
			t.Errorf("%s %s\nanswered %s\nwant %s", step.service, step.content, got, step.want)
		}
	}
	if st := s.State(); len(st.Loans)+len(st.Requests) != 0 || len(st.Items) != 1 || len(s.Received()) != 37 {
		t.Errorf("state %+v after %d messages", st, len(s.Received()))
	}
}

func TestServer_fails_as_it_is_told(t *testing.T) {
	t.Parallel()
	s := newServer(nciptest.Options{Unsupported: []string{"LookupItem"}, OwnRequestIDs: true, Agency: "X"})
	if got := post(t, s, "LookupItem", header+item); !strings.Contains(got, ">Unsupported Service<") {
		t.Error(got)
	}
	if got := post(t, s, "RequestItem", header+user+item+number+hold); !strings.Contains(got, ">R-1<") {
		t.Error(got)
	}
	s.Fail("LookupUser", 1, nciptest.Problem{Type: "Temporary Processing Failure"})
	s.Intercept("LookupUser", 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	if got := post(t, s, "LookupUser", header+user); !strings.Contains(got, ">Temporary Processing Failure<") {
		t.Error(got)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	send := func(service, content string) (int, error) {
		res, err := http.Post(server.URL, "application/xml", strings.NewReader(open+"<"+service+">"+content+"</"+service+"></NCIPMessage>"))
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, err
	}
	if code, err := send("LookupUser", header+user); code != http.StatusTeapot || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	s.LoseAnswer("CancelRequestItem", 1)
	if _, err := send("CancelRequestItem", header+user+item+hold); err == nil || len(s.State().Requests) != 0 {
		t.Errorf("error %v, requests %v", err, s.State().Requests)
	}
	if code, err := send("LookupUser", header+user); code != http.StatusOK || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET answered %d", res.StatusCode)
	}
}

func TestCheck_finds_what_the_schema_does_not_have(t *testing.T) {
	t.Parallel()
	m := func(content string) string { return open + content + "</NCIPMessage>" }
	if err := nciptest.Check([]byte(m("<LookupUser>" + header + user + "</LookupUser>"))); err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"":               "no XML",
		m("<x"):          "no XML",
		m(""):            "is empty",
		`<NCIPMessage/>`: "no NCIPMessage",
		strings.Replace(m(user), "n:version", "version", 1): "no version",
		m(user):              "UserId is no service",
		m("<LookupAgency/>"): "LookupAgency is no service",
		m("<LookupUser>" + header + user + "</LookupUser><Ext/>"):                                                 "Ext is no service",
		m("<LookupUser>" + user + header + "</LookupUser>"):                                                       "LookupUser has UserId;InitiationHeader",
		m("<LookupUser>" + header + "</LookupUser>"):                                                              "LookupUser has InitiationHeader",
		m("<LookupUser>" + user + user + "</LookupUser>"):                                                         "LookupUser has UserId;UserId",
		m("<LookupUser>" + user + "words</LookupUser>"):                                                           "has text beside",
		m(`<LookupUser xmlns="x">` + user + "</LookupUser>"):                                                      "not of NCIP's namespace",
		m(`<LookupUser a="b">` + user + "</LookupUser>"):                                                          "has an attribute a",
		m("<LookupUser>" + user + "<LoanedItemsDesired>x</LoanedItemsDesired></LookupUser>"):                      "is a flag",
		m("<LookupUser>" + user + "<UserElementType><a/></UserElementType></LookupUser>"):                         "not known to have elements",
		m("<CheckOutItem>" + user + item + "<DesiredDateDue>2026-12-24</DesiredDateDue></CheckOutItem>"):          "DesiredDateDue is no date",
		m("<CheckOutItemResponse>" + item + user + "</CheckOutItemResponse>"):                                     "CheckOutItemResponse has",
		m("<LookupUserResponse><Problem><ProblemDetail>x</ProblemDetail></Problem></LookupUserResponse>"):         "Problem has ProblemDetail",
		m("<LookupUserResponse><UserId><UserIdentifierType>x</UserIdentifierType></UserId></LookupUserResponse>"): "UserId has UserIdentifierType",
	} {
		if err := nciptest.Check([]byte(message)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", message, err, want)
		}
	}
}
