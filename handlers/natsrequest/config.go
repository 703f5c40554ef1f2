package natsrequest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/schema"
)

// DefaultMaxReply is how many bytes a reply may have unless it is said otherwise: as many as can be reported.
const DefaultMaxReply = handlers.MaxReport

// A Config says which service is asked. URLs and Prefix are required.
type Config struct {
	natslink.Settings
	Prefix   string `key:"prefix" required:"true" doc:"what the action is put behind, with a dot: the subject of the request"`
	MaxReply int    `key:"max_reply" default:"262144" doc:"bytes that a reply may have"`
}

// Validate reports everything that is wrong with c, without reading files.
func (c Config) Validate() error {
	errs := []error{c.Check()}
	if !isPrefix(c.Prefix) {
		errs = append(errs, errors.New("prefix: want tokens without blanks and wildcards, joined by dots"))
	}
	if c.MaxReply < 0 || c.MaxReply > handlers.MaxReport {
		errs = append(errs, fmt.Errorf("max_reply: is %d, want at most %d, which can be reported", c.MaxReply, handlers.MaxReport))
	}
	return errors.Join(errs...)
}

func isPrefix(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }) {
			return false
		}
	}
	return !strings.HasPrefix(s, "$JS") && !strings.HasPrefix(s, "$SYS") && !strings.HasPrefix(s, "_INBOX") && len(s) <= schema.MaxSubject
}
