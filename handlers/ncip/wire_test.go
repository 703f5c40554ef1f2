package ncip_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/schema"
)

func basic(header string) (user, password string, ok bool) {
	text, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(header, "Basic "))
	user, password, ok = strings.Cut(string(text), ":")
	return user, password, ok && err == nil
}

// A whole message, byte for byte.
func TestMessages_on_the_wire(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{}, lookUps("none"), func(c *ncip.Config) {
		c.FromSystemID, c.ApplicationProfileType = "bridge", "Version 2011"
		c.FromSystemAuthentication = configgroup.NewSecret("p<w")
		c.Schemes = map[string]string{"AgencyId": "http://oclc.org/ncip/schemes/agencyid.scm", "ApplicationProfileType": "http://oclc.org/ncip/schemes/application-profile/platform.scm"}
	})
	must(t, h, job("check-out-item", `{"user":{"value":"2001","type":"Barcode"},"item":{"value":"39001","agency":"L&S"},"desired_date_due":"2026-12-24T01:00:00.5+01:00",
		"item_elements":["Circulation Status"],"user_elements":["User Id"]}`))
	got := s.Received()[0]
	want := `<?xml version="1.0" encoding="UTF-8"?>
<NCIPMessage xmlns="http://www.niso.org/2008/ncip" xmlns:ncip="http://www.niso.org/2008/ncip" ncip:version="http://www.niso.org/schemas/ncip/v2_02/ncip_v2_02.xsd">` +
		`<CheckOutItem><InitiationHeader><FromSystemId>bridge</FromSystemId><FromSystemAuthentication>p&lt;w</FromSystemAuthentication>` +
		`<FromAgencyId><AgencyId ncip:Scheme="http://oclc.org/ncip/schemes/agencyid.scm">MB</AgencyId></FromAgencyId>` +
		`<ToAgencyId><AgencyId ncip:Scheme="http://oclc.org/ncip/schemes/agencyid.scm">LIBRARY</AgencyId></ToAgencyId>` +
		`<ApplicationProfileType ncip:Scheme="http://oclc.org/ncip/schemes/application-profile/platform.scm">Version 2011</ApplicationProfileType></InitiationHeader>` +
		`<UserId><UserIdentifierType>Barcode</UserIdentifierType><UserIdentifierValue>2001</UserIdentifierValue></UserId>` +
		`<ItemId><AgencyId ncip:Scheme="http://oclc.org/ncip/schemes/agencyid.scm">L&amp;S</AgencyId><ItemIdentifierValue>39001</ItemIdentifierValue></ItemId>` +
		`<DesiredDateDue>2026-12-24T00:00:00Z</DesiredDateDue><ItemElementType>Circulation Status</ItemElementType><UserElementType>User Id</UserElementType>` +
		"</CheckOutItem></NCIPMessage>\n"
	if string(got.Body) != want {
		t.Errorf("sent\n%s\nwant\n%s", got.Body, want)
	}
	if got.Header.Get("Content-Type") != "application/xml; charset=utf-8" || got.Header.Get("Accept") != "application/xml" || got.Header.Get("Authorization") != "" {
		t.Errorf("headers %v", got.Header)
	}
	check(t, s)
}

// full has every argument of every action.
var full = []schema.Envelope{
	job("lookup-user", `{"user":{"value":"2001","type":"Barcode","agency":"L"},"elements":["User Id","Name Information"],"loaned_items":true,"requested_items":true,"fiscal_account":true}`),
	job("lookup-item", `{"item":{"value":"39001","type":"Barcode","agency":"L"},"elements":["Circulation Status"],"borrower":true,"requesters":true}`),
	job("lookup-item", `{"request":{"value":"r","type":"t","agency":"a"}}`),
	job("request-item", `{"user":{"value":"2001"},"items":[{"value":"39001"},{"value":"39002"}],"titles":[{"record":"b1","code":"OCLC"},{"record":"b2","agency":"L"},{"item":"978","code":"ISBN"},{"item":"1"}],
		"request_id":"r-1","type":"Loan","scope":"Item","description":{"title":"t","author":"a","title_of_component":"tc","author_of_component":"ac","identifier":"978","identifier_code":"ISBN","edition":"2",
		"pagination":"1-2","place_of_publication":"Ely","publication_date":"1815","publisher":"p","language":"en","medium_type":"Book","call_number":"X"},
		"earliest_date_needed":"2026-12-01T00:00:00Z","need_before_date":"2026-12-24T00:00:00Z","pickup_location":"Desk","pickup_expiry_date":"2026-12-31T00:00:00Z",
		"item_elements":["Location"],"user_elements":["User Id"]}`),
	job("cancel-request-item", `{"user":{"value":"2001"},"request":{"value":"r-1"},"item":{"value":"39001"},"type":"Loan","scope":"Item"}`),
	job("accept-item", `{"item":{"value":"ILL-1"},"user":{"value":"2001"},"request_id":"r-2","action":"Circulate","date_for_return":"2026-12-24T00:00:00Z","renewal_not_permitted":true,
		"description":{"title":"t"},"pickup_location":"Desk","pickup_expiry_date":"2026-12-31T00:00:00Z"}`),
	job("accept-item", `{"item":{"value":"ILL-2"},"user":{"value":"2001"},"indefinite_loan":true}`),
	job("accept-item", `{"item":{"value":"ILL-3"},"user":{"value":"2001"},"non_returnable":true}`),
	job("check-out-item", `{"user":{"value":"2001"},"item":{"value":"39002"},"request":{"value":"r-2","type":"t","agency":"a"},"desired_date_due":"2026-12-24T00:00:00Z","item_elements":["Date Due"],"user_elements":["User Id"]}`),
	job("renew-item", `{"user":{"value":"2001"},"item":{"value":"39002"},"date_due":"2026-12-24T00:00:00Z","desired_date_due":"2027-12-24T00:00:00Z","item_elements":["Date Due"],"user_elements":["User Id"]}`),
	job("check-in-item", `{"item":{"value":"39002"},"user":{"value":"2001"},"item_elements":["Location"],"user_elements":["User Id"]}`),
}

// Whatever is asked for, the elements are in the order of the schema.
func TestMessages_are_as_the_schema_has_them(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{})
	for _, env := range full {
		if _, err := handle(t, h, env); err != nil && !strings.Contains(err.Error(), "Unknown Request") {
			t.Errorf("%s: %v", env.Name, err)
		}
	}
	check(t, s)
	if n := len(s.Received()); n < len(full) {
		t.Errorf("only %d messages", n)
	}
}

// What is previewed is what is sent, look-ups included, but for secrets.
func TestPreview_is_what_is_sent(t *testing.T) {
	t.Parallel()
	s, h := setup(t, nciptest.Options{}, func(c *ncip.Config) {
		c.FromAgencyAuthentication = configgroup.NewSecret("s3cr3t")
		c.Headers = map[string]configgroup.Secret{"X-Token": configgroup.NewSecret("t0ken")}
	})
	for _, env := range full {
		before := len(s.Received())
		list, err := h.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil {
			t.Errorf("%s: %v", env.Name, err)
			continue
		}
		if len(s.Received()) != before {
			t.Fatalf("%s: the preview sent something", env.Name)
		}
		if _, err := handle(t, h, env); err != nil && !strings.Contains(err.Error(), "Unknown Request") {
			t.Errorf("%s: %v", env.Name, err)
		}
		sent := s.Received()[before:]
		if len(sent) != len(list) {
			t.Errorf("%s: %d messages, previewed %d", env.Name, len(sent), len(list))
			continue
		}
		for i, v := range list {
			masked := strings.ReplaceAll(string(sent[i].Body), "s3cr3t", "***")
			if v.Body != masked || !strings.HasPrefix(v.Do, "POST http://127.0.0.1:") || (v.When == "") != (i == 0) {
				t.Errorf("%s: previewed %s, %q\n%s\nsent\n%s", env.Name, v.Do, v.When, v.Body, masked)
			}
			for name, value := range v.Header {
				if got := strings.ReplaceAll(sent[i].Header.Get(name), "t0ken", "***"); got != value {
					t.Errorf("%s: header %s previewed as %q, sent %q", env.Name, name, value, got)
				}
			}
			if v.Header["X-Token"] != "***" || v.Header["Content-Type"] == "" {
				t.Errorf("headers %v", v.Header)
			}
		}
	}
	for _, env := range []schema.Envelope{job("lookup-user", `{}`), job("lend", `{}`), job("lookup-user", `{"user":{"value":"\u0001"}}`)} {
		_, previewed := h.(handlers.Previewer).Preview(t.Context(), env)
		_, err := handle(t, h, env)
		if previewed == nil || err == nil || previewed.Error() != err.Error() || !permanent(previewed) {
			t.Errorf("%s: previewed %v, ran %v", env.Name, previewed, err)
		}
	}
}

// Both sides show certificates, from the files of the settings.
func TestTLS_with_a_client_certificate(t *testing.T) {
	t.Parallel()
	s := library(nciptest.Options{})
	server := httptest.NewUnstartedServer(s)
	own := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	t.Cleanup(own.Close)
	pool := x509.NewCertPool()
	pool.AddCert(own.Certificate())
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	t.Cleanup(server.Close)

	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	pair := own.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, server.URL)
	cfg.TLSCAFile = write("ca.pem", "CERTIFICATE", server.Certificate().Raw)
	_, err = handle(t, newHandler(t, cfg), lookUp)
	wantKind(t, err, schema.Temporary, "LookupUser: ") // no certificate of our own
	cfg.TLSCertFile, cfg.TLSKeyFile = write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", key)
	if got := must(t, newHandler(t, cfg), lookUp); !strings.Contains(got, "2001") {
		t.Errorf("reported %s", got)
	}
	cfg.TLSCAFile = ""
	_, err = handle(t, newHandler(t, cfg), lookUp)
	wantKind(t, err, schema.Temporary, "certificate")
	cfg.TLSCertFile = filepath.Join(dir, "none")
	if _, err := ncip.New(cfg); err == nil || !strings.Contains(err.Error(), "tls.cert_file: ") {
		t.Errorf("error %v", err)
	}
}
