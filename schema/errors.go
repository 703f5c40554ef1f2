package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrorKind says what an error means for the work that failed. It is decided where the error arises, because further
// up only text is left.
type ErrorKind uint8

const (
	// Temporary work may succeed later: back off and try again. It is the kind of an error that nobody classified.
	Temporary ErrorKind = iota
	// Permanent work fails the same way each time: park or dead-letter it at once.
	Permanent
	// Shutdown means that we stopped the work ourselves: it costs no attempt and leaves no mark.
	Shutdown
	// NotMine means that somebody else owns the work now: leave it alone and write nothing.
	NotMine
)

// String returns the kind's name as it appears in logs and headers.
func (k ErrorKind) String() string {
	switch k {
	case Temporary:
		return "temporary"
	case Permanent:
		return "permanent"
	case Shutdown:
		return "shutdown"
	case NotMine:
		return "not_mine"
	}
	return fmt.Sprintf("ErrorKind(%d)", uint8(k))
}

type kindError struct {
	kind  ErrorKind
	err   error
	after time.Duration // see RetryAfter and Snooze
	mark  mark
}

// mark tells errors of one kind apart.
type mark uint8

const (
	markNone mark = iota
	markSnooze
	markCancel
	markGone
)

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// WithKind marks err as being of kind k. The mark survives wrapping with %w; the outermost mark counts. It returns
// nil for a nil err.
func WithKind(k ErrorKind, err error) error {
	if err == nil {
		return nil
	}
	return &kindError{kind: k, err: err}
}

// RetryAfter marks err as [Temporary], with the wait that the other side has asked for. It returns nil for a nil err.
func RetryAfter(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &kindError{kind: Temporary, err: err, after: wait}
}

// RetryAfterOf returns the wait that err was marked with; ok is false if its outermost mark has none.
func RetryAfterOf(err error) (wait time.Duration, ok bool) {
	var marked *kindError
	if !errors.As(err, &marked) || marked.after <= 0 || marked.mark != markNone {
		return 0, false
	}
	return marked.after, true
}

// Snooze marks err as [Temporary] and as no failure: what the work needs is not there yet, and it is to be tried again
// after wait. It costs no attempt. It returns nil for a nil err.
func Snooze(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &kindError{kind: Temporary, err: err, after: max(wait, 0), mark: markSnooze}
}

// SnoozeOf returns the wait that err was snoozed for; ok is false if its outermost mark is another one.
func SnoozeOf(err error) (wait time.Duration, ok bool) {
	var marked *kindError
	if !errors.As(err, &marked) || marked.mark != markSnooze {
		return 0, false
	}
	return marked.after, true
}

// Cancel marks err as [Permanent] and as an end that somebody wanted: the message is done with and leaves no dead
// letter. It returns nil for a nil err.
func Cancel(err error) error {
	if err == nil {
		return nil
	}
	return &kindError{kind: Permanent, err: err, mark: markCancel}
}

// IsCancel reports whether the outermost mark of err is that of [Cancel].
func IsCancel(err error) bool {
	var marked *kindError
	return errors.As(err, &marked) && marked.mark == markCancel
}

// Gone marks err as [Permanent] and as no fault of the message: what the work needs has been taken away for good, and no
// message will fare better. It returns nil for a nil err.
func Gone(err error) error {
	if err == nil {
		return nil
	}
	return &kindError{kind: Permanent, err: err, mark: markGone}
}

// IsGone reports whether the outermost mark of err is that of [Gone].
func IsGone(err error) bool {
	var marked *kindError
	return errors.As(err, &marked) && marked.mark == markGone
}

// KindOf returns the kind that err was marked with. An unmarked error is Permanent if it is a [*ValidationError],
// Shutdown if it is [context.Canceled], and Temporary otherwise.
func KindOf(err error) ErrorKind {
	var marked *kindError
	if errors.As(err, &marked) {
		return marked.kind
	}
	var invalid *ValidationError
	switch {
	case errors.As(err, &invalid):
		return Permanent
	case errors.Is(err, context.Canceled):
		return Shutdown
	}
	return Temporary
}

// Errors that callers decide on. Each is wrapped with what was being done; compare with [errors.Is].
var (
	// ErrInvalid is what every [*ValidationError] wraps.
	ErrInvalid = errors.New("invalid message")
	// ErrKeyReused reports an idempotency key that was already used with other content.
	ErrKeyReused = errors.New("idempotency key was already used with different content")
	// ErrRetryTransaction reports that the database gave up the caller's transaction (deadlock, serialisation
	// failure, busy database). Roll back and run the whole transaction again.
	ErrRetryTransaction = errors.New("the database asks for the transaction to be run again")
	// ErrNotMigrated reports a database without our tables or with an older version of them.
	ErrNotMigrated = errors.New("the database schema is not up to date")
	// ErrSchemaTooNew reports a database that a newer Millbridge has migrated.
	ErrSchemaTooNew = errors.New("the database schema is newer than this program")
	// ErrNotEmpty reports tables that still hold messages, or sagas that are under way.
	ErrNotEmpty = errors.New("there are still messages")
	// ErrLeaseLost reports that another owner has taken over; nothing was written.
	ErrLeaseLost = errors.New("the lease belongs to another owner")
	// ErrNotFound reports that the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous reports that several messages have the id that was given.
	ErrAmbiguous = errors.New("several have this id")
	// ErrAlreadyReplayed reports a dead letter that somebody has replayed or dropped before.
	ErrAlreadyReplayed = errors.New("already replayed or dropped")
	// ErrUndecodable reports a message from the stream that is not one of ours and cannot be read as one.
	ErrUndecodable = errors.New("undecodable message")
)

// A Fault is one thing wrong with a message: the field, what is wrong with it and, for sizes, the length and the limit.
type Fault struct {
	Field  string // as in the public API, for example "target" or "metadata[trace id]"
	Reason string // what is wrong, without the field's name
	Length int    // the length found; 0 when the fault is not one of length
	Limit  int    // the limit it exceeds; 0 when the fault is not one of length
}

func (f Fault) String() string {
	if f.Limit > 0 {
		return fmt.Sprintf("%s: %s (length %d, limit %d)", f.Field, f.Reason, f.Length, f.Limit)
	}
	return f.Field + ": " + f.Reason
}

// A ValidationError lists everything that is wrong with one message. It wraps [ErrInvalid] and is [Permanent].
type ValidationError struct {
	ID     string // the message's id
	Faults []Fault
}

func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		parts[i] = f.String()
	}
	what := ErrInvalid.Error()
	if e.ID != "" {
		what += " " + e.ID
	}
	return what + ": " + strings.Join(parts, "; ")
}

// Unwrap returns [ErrInvalid].
func (e *ValidationError) Unwrap() error { return ErrInvalid }

// Reason renders err as the one line that is stored as a last error: "Type: text", without NUL, control characters
// turned into spaces, at most [MaxReason] characters.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	return OneLine(errorType(err) + ": " + err.Error())
}

// OneLine cuts s to one line of valid UTF-8 without control characters and at most [MaxReason] characters.
func OneLine(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		switch {
		case r == 0:
			continue
		case r == utf8.RuneError:
			r = '?'
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u2028' || r == '\u2029':
			r = ' '
		}
		if n == MaxReason {
			break
		}
		b.WriteRune(r)
		n++
	}
	return strings.TrimSpace(b.String())
}

// errorType names the innermost type that says something: wrappers of fmt, errors and this package do not.
func errorType(err error) string {
	for err != nil {
		name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
		switch name {
		case "fmt.wrapError", "schema.kindError":
			err = errors.Unwrap(err)
			continue
		case "errors.errorString", "fmt.wrapErrors", "errors.joinError":
			return "error"
		}
		return name
	}
	return "error"
}
