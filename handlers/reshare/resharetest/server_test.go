package resharetest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
)

// ask makes a request as a client of FOLIO does and returns status, body and token.
func ask(t testing.TB, s http.Handler, method, path, tenant, token, body string) (status int, answer, newToken string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-Okapi-Tenant", tenant)
	if token != "" {
		r.Header.Set("X-Okapi-Token", token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	res := w.Result()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	newToken = res.Header.Get("X-Okapi-Token")
	for _, c := range res.Cookies() {
		if c.Name == "folioAccessToken" {
			newToken = c.Value
		}
	}
	return res.StatusCode, string(text), newToken
}

const (
	requests = "/rs/patronrequests"
	right    = `{"username":"Bridge","password":"right"}`
)

func TestServer_lets_in_who_may_come_in(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	cfg := resharetest.Config{
		Tenants:   []resharetest.Tenant{{Name: "east", Username: "bridge", Password: "right"}, {Name: "west", Username: "other", Password: "other"}},
		TokenLife: time.Minute, Now: func() time.Time { return now },
	}
	s := resharetest.New(cfg)
	status, text, token := ask(t, s, "POST", "/authn/login-with-expiry", "east", "", right)
	if status != 201 || token == "" || !strings.Contains(text, `"accessTokenExpiration":"2026-11-30T12:01:00Z"`) {
		t.Fatalf("%d %s %q", status, text, token)
	}
	_, _, endless := ask(t, s, "POST", "/authn/login", "east", "", right)
	for _, c := range []struct {
		name, path, tenant, token string
		status                    int
		says                      string
	}{
		{"with a token", requests, "east", token, 200, "[]"},
		{"with one that never ends", requests, "east", endless, 200, "[]"},
		{"without", requests, "east", "", 400, "Token missing"},
		{"with any", requests, "east", "x", 401, "Invalid token"},
		{"with that of another tenant", requests, "west", token, 403, "Invalid token"},
		{"of no tenant", requests, "north", token, 400, "No such Tenant north"},
		{"elsewhere", "/inventory", "east", token, 404, "No suitable module found for path /inventory for tenant east"},
		{"what is not there", requests + "/x", "east", token, 404, "Not Found"},
		{"what is valid there", requests + "/x/validActions", "east", token, 200, "Unable to locate request"},
	} {
		if status, text, _ := ask(t, s, "GET", c.path, c.tenant, c.token, ""); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	now = now.Add(time.Minute)
	if status, _, _ := ask(t, s, "GET", requests, "east", token, ""); status != 401 {
		t.Errorf("after its end: %d", status)
	}
	if status, _, _ := ask(t, s, "GET", requests, "east", endless, ""); status != 200 {
		t.Errorf("one without an end: %d", status)
	}
	s.ExpireTokens()
	if status, _, _ := ask(t, s, "GET", requests, "east", endless, ""); status != 401 {
		t.Errorf("after all were ended: %d", status)
	}
	for body, want := range map[string]int{`{"username":"bridge","password":"wrong"}`: 422, `{}`: 400, `x`: 400} {
		if status, _, token := ask(t, s, "POST", "/authn/login-with-expiry", "east", "", body); status != want || token != "" {
			t.Errorf("%s: %d", body, status)
		}
	}
	cfg.Legacy = true
	if status, _, _ := ask(t, resharetest.New(cfg), "POST", "/authn/login-with-expiry", "east", "", right); status != 404 {
		t.Errorf("an older gateway answers %d", status)
	}
}

func TestServer_checks_new_requests(t *testing.T) {
	t.Parallel()
	s := resharetest.New(resharetest.Config{Tenants: []resharetest.Tenant{
		{Name: "east", Username: "bridge", Password: "right", Supplier: "west"}, {Name: "west"},
	}})
	_, _, token := ask(t, s, "POST", "/authn/login", "east", "", right)
	for _, c := range []struct{ body, state string }{
		{`{"id":"mine","isRequester":true}`, "REQ_INVALID_PATRON"},
		{`{"patronIdentifier":"ada","isRequester":true}`, "REQ_BLANK_FORM_REVIEW"},
		{`{"patronIdentifier":"ada","systemInstanceIdentifier":"1","isRequester":true}`, "REQ_REQUEST_SENT_TO_SUPPLIER"},
	} {
		status, text, _ := ask(t, s, "POST", requests, "east", token, c.body)
		all := s.Requests("east")
		if last := all[len(all)-1]; status != 201 || last.State != c.state || last.ID == "mine" || !strings.Contains(text, `"code":"REQ_IDLE"`) {
			t.Errorf("%s: %d %s, then %+v", c.body, status, text, last)
		}
	}
	if n := len(s.Requests("west")); n != 1 {
		t.Errorf("west has %d", n)
	}
	if status, text, _ := ask(t, s, "POST", requests, "east", token, `{"title":""}`); status != 422 || !strings.Contains(text, "title") {
		t.Errorf("%d %s", status, text)
	}
	if status, text, _ := ask(t, s, "POST", requests+"/x/performAction", "east", token, `{"action":"message"}`); status != 400 || !strings.Contains(text, "Unable to find request") {
		t.Errorf("%d %s", status, text)
	}
}

// A test asks for what a handler has done.
func Example() {
	reshare := resharetest.New(resharetest.Config{Tenants: []resharetest.Tenant{
		{Name: "east", Username: "bridge", Password: "a-password", Supplier: "west"},
		{Name: "west", Username: "bridge", Password: "another"},
	}})
	server := httptest.NewServer(reshare)
	defer server.Close()
	// Here a handler with server.URL as its base_url does its work.
	fmt.Println(len(reshare.Requests("east")), reshare.Logins())
	// Output: 0 0
}
