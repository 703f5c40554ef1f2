package reshare

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// What is taken for a request has an id that can stand in a path, and can be reported.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a-1","state":{"code":"REQ_IDLE"},"isRequester":true,"networkStatus":"Idle","audit":[{"toStatus":{"code":"REQ_IDLE"}}]}`))
	f.Add([]byte(`{"id":"a-1","state":"REQ_IDLE","networkStatus":{"name":"Waiting"},"dateCreated":1234,"title":null}`))
	f.Add([]byte(`{"id":"../users","state":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decodeRecord(body)
		if err != nil {
			if schema.KindOf(err) != schema.Temporary {
				t.Fatal(err)
			}
			return
		}
		if path := (call{path: unknownID}).at(string(r.ID)).path; path == "" || strings.ContainsAny(path, "/.?#% \n") {
			t.Fatalf("the path is %q", path)
		}
		if err := handlers.Report(t.Context(), r.request()); err != nil && len(body) < handlers.MaxReport/6 {
			t.Fatal(err)
		}
		e := effect{reaches: []string{"REQ_IDLE"}}
		_, _, _ = r.isBusy(), e.shows(r), e.isPast(r)
	})
}

// A list is taken whole or not at all.
func FuzzDecodeLists(f *testing.F) {
	f.Add([]byte(`[{"id":"a"},{"id":"b"}]`))
	f.Add([]byte(`{"results":[{"id":"a"}],"total":1}`))
	f.Add([]byte(`{"actions":["message"]}`))
	f.Add([]byte(`{"results":null,"actions":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decodeRecords(body)
		page, _, pageErr := decodePage(body)
		actions, actionsErr := decodeActions(body)
		for _, r := range append(list, page...) {
			if !isName(string(r.ID)) {
				t.Fatalf("a request with the id %q", r.ID)
			}
		}
		if err == nil && (list == nil || pageErr == nil) || pageErr == nil && page == nil || actionsErr == nil && actions == nil {
			t.Fatalf("%s is taken for a list", body)
		}
	})
}

// A token can be sent back, and its life is not over.
func FuzzTokenOf(f *testing.F) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Add("folioAccessToken=abc; Max-Age=600; Path=/; Secure; HttpOnly", "", []byte(`{"accessTokenExpiration":"2026-11-30T12:10:00Z"}`))
	f.Add("folioAccessToken=abc", "", []byte(`{"accessTokenExpiration":"2020-01-01T00:00:00Z"}`))
	f.Add("folioRefreshToken=abc", "legacy", []byte(`{}`))
	f.Fuzz(func(t *testing.T, cookie, header string, body []byte) {
		token, life := tokenOf(http.Header{"Set-Cookie": {cookie}, headerToken: {header}}, body, now)
		if token == "" {
			return
		}
		if life <= 0 || !isToken(token) || strings.ContainsAny(token, " \r\n") {
			t.Fatalf("token %q lives %v", token, life)
		}
	})
}

// What the other side says is one short line, and never says that trying again is useless where the code does not.
func FuzzExplain(f *testing.F) {
	f.Add("text/plain", []byte("No suitable module found for path /x"), 404)
	f.Add("application/json", []byte(`{"message":"a\nb","code":-3}`), 400)
	f.Add("application/json", []byte(`{"errors":[{"message":"x"}],"_embedded":{"errors":[{"message":"y"}]}}`), 422)
	f.Add("text/html", []byte(`<html>`), 500)
	f.Fuzz(func(t *testing.T, kind string, body []byte, status int) {
		s := explain(kind, body)
		s.mask("secret", "")
		err := s.judge(status, schema.WithKind(schema.Temporary, &refusedError{"east", http.ErrNoLocation}))
		text := err.Error()
		if schema.KindOf(err) != schema.Temporary || utf8.RuneCountInString(text) > maxSaid+200 || strings.Contains(text, "secret") || text != schema.OneLine(text) {
			t.Fatalf("%v: %q", schema.KindOf(err), text)
		}
	})
}
