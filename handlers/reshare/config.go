package reshare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// A Config says where ReShare is, and who logs in there for which tenant. BaseURL is required, and the credentials of
// one tenant at least.
type Config struct {
	// BaseURL is what comes before /rs and /authn, without query and user.
	BaseURL *url.URL `key:"base_url" required:"true" doc:"address of the gateway, Okapi or Kong: what comes before /rs and /authn"`
	// Tenant is where messages go that name none.
	Tenant string `key:"tenant" doc:"tenant of the messages that name none"`
	// Username and Password are those of the bridge's user in Tenant.
	Username string             `key:"username" doc:"the bridge's user in that tenant"`
	Password configgroup.Secret `key:"password" doc:"their password"`
	// Tenants has the users of further tenants, by the tenant's name.
	Tenants map[string]Credentials `key:"tenants" doc:"users of further tenants: a username and a password for each"`
	// RequestTimeout is what one request may take; an attempt makes up to eight, logging in included.
	RequestTimeout time.Duration `key:"request_timeout" default:"20s" doc:"what one request may take; an attempt makes up to eight"`
	// Settings say what may be reached, and how.
	outbound.Settings
}

// Credentials are those of one tenant's user.
type Credentials struct {
	Username string             `json:"username"`
	Password configgroup.Secret `json:"password"`
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	errs := c.checkURL()
	switch own := c.Username != "" || !c.Password.IsZero(); {
	case c.Tenant == "" && own:
		errs = append(errs, errors.New("tenant: is missing; username and password are those of a tenant"))
	case c.Tenant == "" && len(c.Tenants) == 0:
		errs = append(errs, errors.New("tenant: is missing; name one here, or several under tenants"))
	case c.Tenant != "":
		errs = append(errs, check("", c.Tenant, Credentials{c.Username, c.Password})...)
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.Tenants)) {
		if tenant == c.Tenant {
			errs = append(errs, fmt.Errorf("tenants: %q is the tenant of username and password already", schema.OneLine(tenant)))
			continue
		}
		errs = append(errs, check("tenants."+schema.OneLine(tenant)+".", tenant, c.Tenants[tenant])...)
	}
	if c.RequestTimeout < 0 {
		errs = append(errs, fmt.Errorf("request_timeout: is %v, must not be negative", c.RequestTimeout))
	}
	return errors.Join(append(errs, c.Check())...)
}

// check looks at the credentials of one tenant; in is where they stand.
func check(in, tenant string, c Credentials) []error {
	var errs []error
	if !isName(tenant) {
		errs = append(errs, fmt.Errorf("%s: want letters, digits, '_' and '-'", strings.TrimSuffix(cmp.Or(in, "tenant"), ".")))
	}
	if c.Username == "" {
		errs = append(errs, fmt.Errorf("%susername: is missing", in))
	}
	if c.Password.IsZero() {
		errs = append(errs, fmt.Errorf("%spassword: is missing", in))
	}
	return errs
}

// isName reports whether s can be the name of a tenant, or the id of a request: a piece of a path and of a header.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// checkURL looks at the address. Its errors do not repeat it.
func (c Config) checkURL() []error {
	u := c.BaseURL
	if u == nil {
		return []error{errors.New("base_url: is missing")}
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return []error{errors.New("base_url: is not an http or https address")}
	}
	var errs []error
	if u.User != nil {
		errs = append(errs, errors.New("base_url: has user information; use username and password"))
	}
	if u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, errors.New("base_url: has a query or a fragment"))
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && c.Check() == nil {
		n := outbound.Network{AllowPrivate: c.AllowPrivate}
		for _, text := range c.AllowedNetworks {
			n.AllowedNetworks = append(n.AllowedNetworks, netip.MustParsePrefix(text))
		}
		if err := n.Check(addr); err != nil {
			errs = append(errs, fmt.Errorf("base_url: %w", err))
		}
	}
	return errs
}

// credentials returns those of a message's tenant, and what the tenant is called.
func (c Config) credentials(tenant string) (string, Credentials, error) {
	switch own, ok := c.Tenants[tenant]; {
	case ok:
		return tenant, own, nil
	case c.Tenant != "" && (tenant == "" || tenant == c.Tenant):
		return c.Tenant, Credentials{c.Username, c.Password}, nil
	case tenant == "":
		return "", Credentials{}, errors.New("the message names no tenant, and there is none for such messages")
	}
	return "", Credentials{}, fmt.Errorf("there are no credentials for tenant %q", schema.OneLine(tenant))
}
