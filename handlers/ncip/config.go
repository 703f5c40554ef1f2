package ncip

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// What [Config.LookUps] may name.
const (
	LookUpUser = "user" // LookupUser, with loaned and requested items
	LookUpItem = "item" // LookupItem, with the current borrower
	LookUpNone = "none" // nothing: see the package's documentation for what that costs
)

// Config is the settings of a target of type ncip.
type Config struct {
	BaseURL    *url.URL `key:"base_url" required:"true" doc:"where messages are posted"`
	FromAgency string   `key:"from_agency" required:"true" doc:"own agency: FromAgencyId, and the agency of the request ids that are made here"`
	ToAgency   string   `key:"to_agency" required:"true" doc:"the responder's agency: ToAgencyId"`

	FromSystemID             string             `key:"from_system_id" doc:"FromSystemId"`
	FromSystemAuthentication configgroup.Secret `key:"from_system_authentication" doc:"FromSystemAuthentication"`
	FromAgencyAuthentication configgroup.Secret `key:"from_agency_authentication" doc:"FromAgencyAuthentication"`

	// ApplicationProfileType is left out of the header if it is empty. Some responders require it, such as Alma.
	ApplicationProfileType string `key:"application_profile_type" doc:"ApplicationProfileType; not sent if empty"`
	// Schemes gives elements their attribute Scheme, by the element's name. Some responders require it, others cannot read
	// a value that has one, so none is sent by default.
	Schemes map[string]string `key:"schemes" doc:"Scheme attributes to send, by element, such as AgencyId"`
	// LookUps says which look-ups the responder answers; they are asked before anything that has an effect.
	LookUps []string `key:"look_ups" default:"user,item" doc:"look-ups that the responder answers, to find out what was done already: user, item, or none"`

	Username string                        `key:"username" doc:"user of HTTP basic authentication"`
	Password configgroup.Secret            `key:"password" doc:"its password"`
	Headers  map[string]configgroup.Secret `key:"headers" doc:"further HTTP headers"`

	RequestTimeout time.Duration `key:"request_timeout" default:"20s" doc:"of one message and its answer; an action may need several"`
	outbound.Settings
}

// withSchemes are the elements that are sent and may have a Scheme.
var withSchemes = []string{
	"AgencyId", "ApplicationProfileType", "BibliographicItemIdentifierCode", "BibliographicRecordIdentifierCode", "FromSystemId", "ItemElementType",
	"ItemIdentifierType", "Language", "MediumType", "PickupLocation", "RequestIdentifierType", "RequestScopeType", "RequestType",
	"RequestedActionType", "UserElementType", "UserIdentifierType",
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	fault := func(key, format string, args ...any) { errs = append(errs, fmt.Errorf(key+": "+format, args...)) }
	switch u := c.BaseURL; {
	case u == nil:
		fault("base_url", "is missing")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		fault("base_url", "is not an http or https address")
	case u.User != nil:
		fault("base_url", "has a user or password; there are settings for them")
	case u.Fragment != "":
		fault("base_url", "has a fragment")
	}
	for _, f := range []struct{ key, value, needed string }{
		{"from_agency", c.FromAgency, "is missing"}, {"to_agency", c.ToAgency, "is missing"}, {"from_system_id", c.FromSystemID, ""}, {"application_profile_type", c.ApplicationProfileType, ""},
	} {
		switch {
		case f.value == "" && f.needed != "":
			fault(f.key, "%s", f.needed)
		case !isText(f.value):
			fault(f.key, "has a character that XML cannot carry")
		}
	}
	for _, f := range []struct {
		key   string
		value configgroup.Secret
	}{{"from_system_authentication", c.FromSystemAuthentication}, {"from_agency_authentication", c.FromAgencyAuthentication}} {
		if !isText(f.value.Reveal()) {
			fault(f.key, "has a character that XML cannot carry")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Schemes)) {
		if !slices.Contains(withSchemes, name) {
			fault("schemes", "%q is not sent with a Scheme; there are %s", schema.OneLine(name), strings.Join(withSchemes, ", "))
		} else if s := c.Schemes[name]; s == "" || !isText(s) {
			fault("schemes", "that of %s is no address", name)
		}
	}
	for _, l := range c.LookUps {
		if l != LookUpUser && l != LookUpItem && l != LookUpNone {
			fault("look_ups", "%q is none of user, item, none", schema.OneLine(l))
		} else if l == LookUpNone && len(c.LookUps) > 1 {
			fault("look_ups", "none goes together with nothing")
		}
	}
	if c.Username == "" != c.Password.IsZero() {
		fault("username", "goes together with password")
	} else if strings.Contains(c.Username, ":") {
		fault("username", "has a colon, which basic authentication cannot carry")
	}
	errs = append(errs, c.checkHeaders()...)
	if c.RequestTimeout < 0 {
		fault("request_timeout", "is %v, must not be negative", c.RequestTimeout)
	}
	return errors.Join(append(errs, c.Check())...)
}

// checkHeaders refuses what cannot be a header and what the request itself is made of.
func (c Config) checkHeaders() []error {
	var errs []error
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		low := strings.ToLower(name)
		fault := func(what string) { errs = append(errs, fmt.Errorf("headers: %s %s", schema.OneLine(name), what)) }
		switch low {
		case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
			"expect", "accept-encoding":
			fault("is not free")
		case "authorization":
			if c.Username != "" {
				fault("is made of username and password")
			}
		}
		switch {
		case !schema.IsHeaderName(name):
			fault("is not a header's name")
		case seen[low]:
			fault("is there twice")
		case !isHeaderValue(c.Headers[name].Reveal()):
			fault("has a value that cannot be sent")
		}
		seen[low] = true
	}
	return errs
}

func isHeaderValue(v string) bool {
	return v == strings.Trim(v, " \t") && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f })
}

// looks reports whether the responder answers a look-up.
func (c Config) looks(which string) bool {
	return c.LookUps == nil || slices.Contains(c.LookUps, which)
}

// host is what may be shown of the address: path and query often hold a token.
func (c Config) host() string {
	if c.BaseURL == nil {
		return "?"
	}
	text := c.BaseURL.Scheme + "://" + c.BaseURL.Host
	if c.BaseURL.Path != "" && c.BaseURL.Path != "/" || c.BaseURL.RawQuery != "" {
		text += "/" + mask
	}
	return text
}

const mask = "***"

// String leaves out what is secret.
func (c Config) String() string {
	return fmt.Sprintf("ncip %s from %s to %s", c.host(), schema.OneLine(c.FromAgency), schema.OneLine(c.ToAgency))
}

// Format writes String whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
