package natsrelay

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/schema"
)

// DefaultEventsTTL is how long an event stays in the stream of another Millbridge unless it is told otherwise.
const DefaultEventsTTL = 7 * 24 * time.Hour

// A Config says where messages go. URLs, Origin and one of Prefix and Subject are required.
type Config struct {
	natslink.Settings
	Origin    string        `key:"origin" required:"true" doc:"what this bridge is called where loops are looked for; no other one has the name"`
	Prefix    string        `key:"prefix" doc:"prefix of the Millbridge on the other side, which then has the messages as its own jobs and events"`
	Target    string        `key:"target" doc:"with prefix: the target of the jobs there, if it is not called as here"`
	EventsTTL time.Duration `key:"events_ttl" default:"168h" doc:"with prefix: how long an event stays in the stream there"`
	Subject   string        `key:"subject" doc:"in place of prefix: the subject that all messages go to"`
}

// Validate reports everything that is wrong with c, without reading files.
func (c Config) Validate() error {
	errs := []error{c.Check()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := schema.CheckTarget(c.Origin); err != nil {
		bad("origin: want a name of a-z, 0-9, '-' and '_', starting with a letter or digit")
	}
	switch {
	case (c.Prefix == "") == (c.Subject == ""):
		bad("prefix: give either this, for another Millbridge, or subject")
	case c.Subject != "" && !isSubject(c.Subject):
		bad("subject: want tokens without blanks and wildcards, joined by dots")
	}
	if err := (schema.Subjects{Prefix: c.Prefix}).Validate(); err != nil {
		bad("prefix: %w", err)
	}
	if c.Target != "" && c.Subject != "" {
		bad("target: goes with prefix only")
	} else if err := schema.CheckTarget(c.Target); c.Target != "" && err != nil {
		bad("target: want a name of a-z, 0-9, '-' and '_', starting with a letter or digit")
	}
	if c.EventsTTL < 0 || c.EventsTTL > 0 && c.EventsTTL < time.Second {
		bad("events_ttl: is %v, want at least 1s", c.EventsTTL)
	}
	return errors.Join(errs...)
}

// isSubject reports whether messages can be published on s, and whether it is no part of the server's own.
func isSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }) {
			return false
		}
	}
	return !strings.HasPrefix(s, "$") && !strings.HasPrefix(s, "_INBOX.") && len(s) <= schema.MaxSubject
}
