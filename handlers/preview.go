package handlers

import (
	"context"

	"github.com/millbridge/millbridge/schema"
)

// A Previewer is a handler that can say what it would send for a message, without sending anything: for
// `millbridge target test`, and for tests of configurations.
type Previewer interface {
	// Preview returns what would be sent, in order. The error is that of a run which fails before it has sent
	// anything. It does no I/O and is safe for concurrent use.
	Preview(ctx context.Context, env schema.Envelope) ([]Preview, error)
}

// A Preview is one thing that a handler would send. Secrets are masked.
type Preview struct {
	// Do says what is done and where, as "POST https://crm.example/contacts" or "exec /usr/bin/label --a4".
	Do string `json:"do"`
	// When says under which condition it is done, if not always: "the look-up finds nothing".
	When string `json:"when,omitempty"`
	// Header has the headers, or the variables of a program.
	Header map[string]string `json:"header,omitempty"`
	// Body is sent as it is here, but for secrets.
	Body string `json:"body,omitempty"`
}
