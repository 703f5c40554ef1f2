package schema

import "time"

// A Circuit is the breaker of one handler, shared by all processes: after a number of failures in a row nothing is
// handed to the handler until it has cooled down and a probe has gone through. A circuit without failures has no record.
type Circuit struct {
	Handler  string
	Failures int           // in a row
	Open     bool          // nothing but probes is let through
	Left     time.Duration // open: until the next probe, by the database's clock; 0 or less means that it is due
	Since    time.Time     // open: since when, by the database's clock
	Reason   string        // the last failure, one line
}
