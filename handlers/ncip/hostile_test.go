package ncip_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/schema"
)

func permanent(err error) bool { return schema.KindOf(err) == schema.Permanent }

// answering is the config for a server that always gives one answer; of extra, texts are headers.
func answering(t *testing.T, code int, body string, extra ...any) ncip.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i+1 < len(extra); i += 2 {
			if name, ok := extra[i].(string); ok {
				w.Header().Set(name, extra[i+1].(string))
			}
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	cfg := config(t, server.URL)
	for _, e := range extra {
		if change, ok := e.(func(*ncip.Config)); ok {
			change(&cfg)
		}
	}
	return cfg
}

const (
	message = `<NCIPMessage xmlns="http://www.niso.org/2008/ncip">`
	good    = message + `<LookupUserResponse><UserId><UserIdentifierValue>2001</UserIdentifierValue></UserId></LookupUserResponse></NCIPMessage>`
)

var lookUp = job("lookup-user", `{"user":{"value":"2001"}}`)

func TestAnswers_that_are_none(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	for range 64 {
		if _, err := zip.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, body string
		header     []any
		want       string
	}{
		{"NCIP 1", `<NCIPMessage xmlns="urn:other"></NCIPMessage>`, nil, "no NCIPMessage"},
		{"cut off", good[:len(good)-20], nil, "no XML at byte"},
		{"two roots", good + good, nil, "two roots"},
		{"a document type", `<!DOCTYPE NCIPMessage PUBLIC "-//NISO//NCIP DTD Version 1//EN" "http://127.0.0.1/x.dtd">` + good, nil, "document type"},
		{"an entity", `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>` + strings.Replace(good, "2001", "&e;", 1), nil, "document type"},
		{"an entity that nobody declared", strings.Replace(good, "2001", "&e;", 1), nil, "no XML at byte"},
		{"another encoding", `<?xml version="1.0" encoding="ISO-8859-1"?>` + good, nil, "no XML at byte"},
		{"another charset", good, []any{"Content-Type", "application/xml; charset=utf-16"}, "not in UTF-8"},
		{"bytes that are no text", strings.Replace(good, "2001", "\xff\xfe", 1), nil, "no XML at byte"},
		{"compressed", bomb.String(), []any{"Content-Encoding", "gzip"}, "compressed"},
		{"too long", message + strings.Repeat(" ", 1<<20) + "</NCIPMessage>", nil, "more than 1048576 bytes"},
		{"too deep", message + strings.Repeat("<Ext>", 50) + strings.Repeat("</Ext>", 50) + "</NCIPMessage>", nil, "deeper than 40"},
		{"too deep elsewhere", message + strings.Repeat(`<Ext xmlns="x">`, 50) + strings.Repeat("</Ext>", 50) + "</NCIPMessage>", nil, "deeper than 40"},
		{"too many", message + "<LookupUserResponse>" + strings.Repeat("<a/>", 21000) + "</LookupUserResponse></NCIPMessage>", nil, "more than 20000 elements"},
		{"another service", strings.ReplaceAll(good, "LookupUserResponse", "LookupItemResponse"), nil, "has no LookupUserResponse"},
		{"neither data nor problem", message + "<LookupUserResponse><ResponseHeader/><Ext/></LookupUserResponse></NCIPMessage>", nil, "neither data nor a problem"},
	} {
		_, err := handle(t, newHandler(t, answering(t, 200, c.body, c.header...)), lookUp)
		if err == nil || !permanent(err) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "LookupUser: ") {
			t.Errorf("%s: error %v, want permanent with %q", c.name, err, c.want)
		}
		if len(fmt.Sprint(err)) > 200 {
			t.Errorf("%s: the error has %d bytes", c.name, len(err.Error()))
		}
	}
}

// A page of a proxy between us says nothing about the message.
func TestAnswers_of_somebody_else(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                           "there is no element",
		"It works!":                  "there is no element",
		"<html><body></body></html>": "no NCIPMessage",
		"<!doctype HTML><html><body>Back <b>soon&nbsp;": "it is HTML",
		"<br>Back soon": "no NCIPMessage",
		"\x1f\x8b\x08":  "no XML at byte",
	} {
		_, err := handle(t, newHandler(t, answering(t, 200, body)), lookUp)
		wantKind(t, err, schema.Temporary, want)
	}
}

// Text that comes in many pieces must not cost the square of its length.
func TestAnswers_in_pieces(t *testing.T) {
	t.Parallel()
	pieces := strings.Repeat("a<!---->", 120_000)
	got, err := handle(t, newHandler(t, answering(t, 200, strings.Replace(good, "2001", pieces, 1))), lookUp)
	if err != nil || len(got) != 120_000+len(`{"user":{"value":""}}`) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

func TestStatus_decides_before_the_answer(t *testing.T) {
	t.Parallel()
	for code, kind := range map[int]schema.ErrorKind{
		301: schema.Permanent, 302: schema.Temporary, 400: schema.Permanent, 401: schema.Permanent, 403: schema.Permanent, 404: schema.Permanent,
		429: schema.Temporary, 500: schema.Temporary, 503: schema.Temporary,
	} {
		_, err := handle(t, newHandler(t, answering(t, code, good, "Location", "http://127.0.0.1:1/", "Retry-After", "7")), lookUp)
		wantKind(t, err, kind, fmt.Sprintf("LookupUser: answered %d", code))
		if wait, ok := schema.RetryAfterOf(err); kind == schema.Temporary && (!ok || wait != 7*time.Second) {
			t.Errorf("%d: wait %v", code, wait)
		}
	}
}

func TestConnections_that_fail(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	_, err = handle(t, newHandler(t, config(t, "http://"+closed.Addr().String()+"/path?apikey=s3cr3t")), lookUp)
	wantKind(t, err, schema.Temporary, "LookupUser: ")
	if strings.Contains(fmt.Sprint(err), "s3cr3t") {
		t.Error(err)
	}

	cfg := config(t, "http://127.0.0.1:1")
	cfg.AllowPrivate = false
	_, err = handle(t, newHandler(t, cfg), lookUp)
	wantKind(t, err, schema.Permanent, "loopback")

	s, h := setup(t, nciptest.Options{})
	s.LoseAnswer("LookupUser", 1)
	_, err = handle(t, h, lookUp)
	wantKind(t, err, schema.Temporary, "LookupUser: ")
	if n := len(s.Asked()); n != 1 {
		t.Errorf("sent %d times", n)
	}

	s.Intercept("LookupUser", 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, good)
		panic(http.ErrAbortHandler)
	})
	_, err = handle(t, h, lookUp)
	wantKind(t, err, schema.Temporary, "LookupUser: ")
}

func TestSlow_answers_have_a_deadline(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{}, func(c *ncip.Config) { c.RequestTimeout = 50 * time.Millisecond })
	drip := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, message)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	s.Intercept("LookupUser", 1, drip)
	_, err := handle(t, h, lookUp)
	wantKind(t, err, schema.Temporary, "no complete answer within 50ms")

	_, h = setup(t, nciptest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, h.Handle(ctx, lookUp), schema.Shutdown, "LookupUser: ")
}
