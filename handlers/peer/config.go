package peer

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// A Config says where messages are sent. URL, Origin and Secrets are required.
type Config struct {
	URL     *url.URL             `key:"url" required:"true" doc:"where the other Millbridge receives, such as https://branch.example:8443/messages"`
	Origin  string               `key:"origin" required:"true" doc:"what this bridge is called there, and where loops are looked for; no other one has the name"`
	Secrets []configgroup.Secret `key:"secrets" required:"true" doc:"secrets to sign with (whsec_... or whsk_...), the newest first"`
	Target  string               `key:"target" doc:"target of the jobs there, if it is not called as here"`
	outbound.Settings
}

// Validate reports everything that is wrong with c, without reading files.
func (c Config) Validate() error {
	errs := []error{c.Check()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch u := c.URL; {
	case u == nil:
		bad("url: is missing")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		bad("url: is not an http or https address without user and fragment")
	}
	if schema.CheckTarget(c.Origin) != nil {
		bad("origin: %s", wantName)
	}
	if c.Target != "" && schema.CheckTarget(c.Target) != nil {
		bad("target: %s", wantName)
	}
	if len(c.Secrets) == 0 {
		bad("secrets: there are none")
	}
	for i, s := range c.Secrets {
		if _, err := webhook.Sign(s.Reveal(), "x", time.Time{}, nil); err != nil {
			bad("secrets: number %d: %w", i+1, err)
		}
	}
	return errors.Join(errs...)
}

const wantName = "want a name of a-z, 0-9, '-' and '_', starting with a letter or digit"
