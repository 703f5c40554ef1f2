package ncip_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

func TestConfig_from_variables(t *testing.T) {
	t.Parallel()
	got, err := configgroup.Load[ncip.Config]("ncip-main", configgroup.Environ([]string{
		"MILLBRIDGE_NCIP_MAIN_BASE_URL=https://ncip.example/ncip", "MILLBRIDGE_NCIP_MAIN_FROM_AGENCY=MB", "MILLBRIDGE_NCIP_MAIN_TO_AGENCY=LIB",
		`MILLBRIDGE_NCIP_MAIN_SCHEMES={"AgencyId":"http://oclc.org/ncip/schemes/agencyid.scm"}`, "MILLBRIDGE_NCIP_MAIN_LOOK_UPS=item",
		`MILLBRIDGE_NCIP_MAIN_HEADERS={"X-Okapi-Tenant":"diku"}`, "MILLBRIDGE_NCIP_MAIN_APPLICATION_PROFILE_TYPE=Version 2011",
		"MILLBRIDGE_NCIP_MAIN_FROM_SYSTEM_ID=bridge", "MILLBRIDGE_NCIP_MAIN_FROM_SYSTEM_AUTHENTICATION=s", "MILLBRIDGE_NCIP_MAIN_TLS_CA_FILE=ca.pem",
	}))
	if err != nil || got.Schemes["AgencyId"] == "" || fmt.Sprint(got.LookUps) != "[item]" || got.Headers["X-Okapi-Tenant"].Reveal() != "diku" ||
		got.FromSystemAuthentication.Reveal() != "s" || got.RequestTimeout != 20*time.Second || got.TLSCAFile != "ca.pem" {
		t.Errorf("error %v", err)
	}
	if _, err := configgroup.Load[ncip.Config]("ncip-main", configgroup.Environ([]string{"MILLBRIDGE_NCIP_MAIN_BASE_URL=ftp://x", "MILLBRIDGE_NCIP_MAIN_TO_AGENCY=x"})); err == nil {
		t.Error("loaded without an agency")
	}
}

func TestConfig_reports_all_faults(t *testing.T) {
	t.Parallel()
	s := configgroup.NewSecret
	cfg := ncip.Config{
		BaseURL: &url.URL{Scheme: "https", Host: "x", User: url.User("u"), Path: "/s3cr3t"}, ToAgency: "\x01", FromSystemID: "\x01", ApplicationProfileType: "\x01",
		FromSystemAuthentication: s("s3cr3t\x01"), FromAgencyAuthentication: s("s3cr3t\x01"),
		Schemes: map[string]string{"AgencyID": "x", "RequestType": ""}, LookUps: []string{"none", "users"}, Username: "u:v", RequestTimeout: -1,
		Headers: map[string]configgroup.Secret{
			"Host": s("x"), "content-type": s("x"), "Authorization": s("s3cr3t"), "a b": s("x"), "X-Line": s("s3cr3t\n"), "x-twice": s("1"), "X-Twice": s("2"),
		},
		Settings: outbound.Settings{AllowedNetworks: []string{"all"}, TLSKeyFile: "k"},
	}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"base_url: has a user", "from_agency: is missing", "to_agency: has a character", "from_system_id: ", "application_profile_type: ", "from_system_authentication: has", "from_agency_authentication: has",
		`schemes: "AgencyID" is not sent`, "schemes: that of RequestType", "look_ups: none goes", `look_ups: "users"`, "username: goes together", "request_timeout: is -1ns",
		"headers: Host is not free", "headers: content-type is not free", "headers: Authorization is made", "headers: a b is not a header", "headers: X-Line has a value",
		"headers: x-twice is there twice", "allowed_networks: ", "tls.cert_file: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if key, _, ok := strings.Cut(line, ": "); !ok || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_.") != "" {
			t.Errorf("%q does not begin with its key", line)
		}
	}
	if _, newErr := ncip.New(cfg); newErr == nil || strings.Contains(newErr.Error(), "s3cr3t") || !permanent(newErr) {
		t.Errorf("New: %v", newErr)
	}
	for _, bad := range []*url.URL{nil, {Scheme: "ftp", Host: "x"}, {Scheme: "https"}, {Scheme: "https", Host: ":443"}, {Scheme: "https", Opaque: "x"}, {Scheme: "https", Host: "x", Fragment: "f"}} {
		cfg := ncip.Config{BaseURL: bad, FromAgency: "a", ToAgency: "b"}
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), "base_url: ") {
			t.Errorf("%v: error %v", bad, err)
		}
	}
}

// The settings in the documentation are those that are read.
func TestConfig_is_documented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/targets/ncip.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := configgroup.SettingsOf(new(ncip.Config))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		def := ""
		switch {
		case s.Required:
			def = "required"
		case s.Default != "":
			def = "`" + s.Default + "`"
		}
		row := fmt.Sprintf("\n| `%s` | %s | ", s.Key, def)
		if def == "" {
			row = fmt.Sprintf("\n| `%s` | | ", s.Key)
		}
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/targets/ncip.md lacks %q", row)
		}
		if s.IsSecret() && !strings.Contains(string(page), "\n| `"+s.Key+"_file` | | ") {
			t.Errorf("docs/targets/ncip.md lacks %s_file", s.Key)
		}
	}
}

// Nothing that can be printed or stored may hold what is secret, not even when the other side repeats it.
func TestNothing_tells_secrets(t *testing.T) {
	t.Parallel()
	const marker = "SECRET123"
	var logs bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&logs, nil))
	var seen []string
	print := func(v any) {
		seen = append(seen, fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v), fmt.Sprintf("%s %q %d", v, v, v))
		logger.Info("x", "v", v)
	}
	s := configgroup.NewSecret
	secret := func(c *ncip.Config) {
		c.BaseURL = c.BaseURL.JoinPath(marker + "1")
		c.BaseURL.RawQuery = "apikey=" + marker + "2"
		c.FromSystemAuthentication, c.FromAgencyAuthentication = s(marker+"3"), s(marker+"4")
		c.Username, c.Password = "bridge", s(marker+"5")
		c.Headers = map[string]configgroup.Secret{"X-Token": s(marker + "6"), "X-Phrase": s("pass phrase")}
		print(*c)
	}
	library, h := setup(t, nciptest.Options{}, secret)
	print(h)
	library.Fail("LookupUser", 1, nciptest.Problem{Type: marker + "3", Detail: "you sent " + marker + "5", Element: "pass\nphrase", Value: marker + "6"})
	_, err := handle(t, h, lookUp)
	print(err)
	if err == nil || !strings.Contains(err.Error(), "you sent ***") {
		t.Errorf("error %v", err)
	}
	list, err := h.(handlers.Previewer).Preview(t.Context(), effects["check-out-item"])
	if err != nil {
		t.Fatal(err)
	}
	print(list)
	for _, cfg := range []ncip.Config{answering(t, 500, marker), answering(t, 200, marker), answering(t, 302, "", "Location", "/"+marker), config(t, "http://127.0.0.1:1")} {
		secret(&cfg)
		_, err := handle(t, newHandler(t, cfg), lookUp)
		print(err)
	}
	for _, text := range append(seen, logs.String()) {
		if strings.Contains(text, marker) || strings.Contains(text, "pass phrase") {
			t.Errorf("%q", text)
		}
	}
	got := library.Received()[0]
	if user, password, ok := basic(got.Header.Get("Authorization")); !ok || user != "bridge" || password != marker+"5" || got.Header.Get("X-Token") != marker+"6" ||
		!strings.Contains(string(got.Body), "<FromSystemAuthentication>"+marker+"3</") || !strings.Contains(string(got.Body), "<FromAgencyAuthentication>"+marker+"4</") {
		t.Errorf("the secrets were not sent: %v %s", got.Header, got.Body)
	}
	check(t, library)
}

func TestHandler_is_a_target_s(t *testing.T) {
	t.Parallel()
	_, h := setup(t, nciptest.Options{})
	if err := (handlers.Target{Name: "library", Handler: h}).Validate(); err != nil {
		t.Error(err)
	}
	want := "accept-item cancel-request-item check-in-item check-out-item lookup-item lookup-user renew-item request-item"
	if got := strings.Join(h.(interface{ Names() []string }).Names(), " "); got != want {
		t.Errorf("actions %s", got)
	}
	if _, err := handle(t, h, schema.NewJob("library", ncip.ActionLookupUser, []byte(`{"user":{"value":"2001"}}`))); err != nil {
		t.Error(err)
	}
}
