package schema

import "errors"

// ErrUnavailable reports a database that cannot do its work now, whoever asks: it cannot be reached, takes no writes or
// has no room. It is what all errors of this kind are; each says in words which it is. Nothing is wrong with the work
// that failed, so that it costs no attempt. Its kind is [Temporary].
var ErrUnavailable = errors.New("the database is not available")

// The ways in which a database is not available.
var (
	ErrUnreachable error = &outage{"the database cannot be reached"}
	ErrNoAnswer    error = &outage{"the database does not answer in time"}
	ErrReadOnly    error = &outage{"the database is read-only"}
	ErrNoSpace     error = &outage{"the disk of the database is full"}
	ErrNoConns     error = &outage{"all connections to the database are in use"}
	ErrIO          error = &outage{"the disk of the database fails"}
	ErrBusy        error = &outage{"somebody else holds the database for too long"} // SQLite's only writer
)

type outage struct{ text string }

func (e *outage) Error() string        { return e.text }
func (e *outage) Is(target error) bool { return target == ErrUnavailable }

// ErrRecovered reports a database that has lost what it had confirmed before, as after a restore or a fail-over to a
// server that lagged behind: what is remembered of it is not true any more.
var ErrRecovered = errors.New("the database has lost what it had confirmed")
