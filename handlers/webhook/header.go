package webhook

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/schema"
)

// headers reads the configured headers, by canonical name.
func (c Config) headers() (map[string]*fields.Template, []error) {
	list := make(map[string]*fields.Template, len(c.Headers))
	var errs []error
	if len(c.Headers) > maxHeaders {
		errs = append(errs, fmt.Errorf("headers: there are %d, at most %d are allowed", len(c.Headers), maxHeaders))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if err := checkHeaderName(name); err != nil {
			errs = append(errs, err)
			continue
		}
		canonical := http.CanonicalHeaderKey(name)
		if list[canonical] != nil {
			errs = append(errs, fmt.Errorf("headers.%s: is there twice", canonical))
			continue
		}
		value := c.Headers[name].Reveal()
		t, err := fields.Parse(value, fields.Header)
		if err == nil && value != strings.Trim(value, " \t") {
			err = errors.New("has a blank at an end")
		}
		if err != nil {
			errs = append(errs, under("headers."+name, err)...)
			continue
		}
		list[canonical] = t
	}
	return list, errs
}

// checkHeaderName refuses what cannot be a header and what the request itself is made of.
func checkHeaderName(name string) error {
	low := strings.ToLower(name)
	if !schema.IsHeaderName(name) {
		return fmt.Errorf("headers: %q is not a header's name", schema.OneLine(name))
	}
	switch low {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"expect", "accept-encoding", "idempotency-key", schema.HeaderTraceParent, schema.HeaderTraceState:
		return fmt.Errorf("headers.%s: is not free", name)
	}
	if strings.HasPrefix(low, "ce-") || strings.HasPrefix(low, "webhook-") || strings.HasPrefix(low, "proxy-") {
		return fmt.Errorf("headers.%s: is not free", name)
	}
	return nil
}

func isHeaderValue(v string) bool {
	return v == strings.Trim(v, " \t") && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f })
}
