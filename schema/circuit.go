package schema

import (
	"fmt"
	"time"
)

// A Circuit is what all processes know of a handler that fails, or that nothing is handed to. After a number of failures
// in a row it is open until it has cooled down and a probe has gone through; it may also be disabled, by failures that
// last or by an operator, until somebody enables it. A handler that does well has none.
type Circuit struct {
	Handler  string
	Failures int           // in a row
	Failing  time.Duration // since the first of them, by the database's clock
	Open     bool          // messages wait: nothing but probes is let through, and not even those if Disabled
	Disabled bool          // until somebody enables the handler
	Left     time.Duration // open: until the next probe, by the database's clock; 0 or less means that it is due
	Since    time.Time     // open or disabled: since when, by the database's clock
	Reason   string        // the last failure, or why it was disabled; one line
}

// A HandlerChange is the payload of [HandlerDisabled] and [HandlerEnabled].
type HandlerChange struct {
	Handler  string    `json:"handler"`        // the target or subscription
	Since    time.Time `json:"since,omitzero"` // when it was disabled
	Reason   string    `json:"reason"`         // why it was
	Failures int       `json:"failures"`
}

// The events that a store publishes in the transaction in which it disables or enables a handler, so that there is one
// for each change, however many processes ask for it.
var (
	HandlerDisabled = EventType[HandlerChange]{Name: "millbridge.target.disabled"}
	HandlerEnabled  = EventType[HandlerChange]{Name: "millbridge.target.enabled"}
)

// Change returns c as the payload of an event.
func (c Circuit) Change() HandlerChange {
	return HandlerChange{Handler: c.Handler, Since: c.Since.UTC(), Reason: c.Reason, Failures: c.Failures}
}

// Why says in words why the messages of an open circuit wait, to come after the handler's name.
func (c Circuit) Why() string {
	since := c.Since.UTC().Format(time.RFC3339)
	switch {
	case c.Disabled && c.Failures > 0:
		return fmt.Sprintf("is disabled since %s after %d failures in a row, and its messages wait for `millbridge target enable %s`: %s",
			since, c.Failures, c.Handler, c.Reason)
	case c.Disabled:
		return fmt.Sprintf("is disabled since %s, and its messages wait for `millbridge target enable %s`: %s", since, c.Handler, c.Reason)
	}
	return fmt.Sprintf("has failed %d times in a row, and its messages wait since %s until a try succeeds: %s", c.Failures, since, c.Reason)
}
