package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// ErrUnfinished reports handlers that did not finish within the close timeout; their messages come back.
var ErrUnfinished = errors.New("handlers did not finish in time")

// Causes with which the context of a run ends.
var (
	errStopped   = schema.WithKind(schema.Shutdown, errors.New("the bridge stops and waits no longer"))
	errLeaseLost = schema.WithKind(schema.NotMine, errors.New("the run has lost its lease"))
	errTimeout   = errors.New("the attempt has used up its time")
)

// What the inbox may answer instead of letting a run start. These errors travel from the idempotency middleware to the
// settle middleware.
var (
	errHandled    = errors.New("handled before")
	errSuperseded = errors.New("a later replay has taken over")
)

// busyError says that another run holds the key.
type busyError struct{ wait time.Duration }

func (e *busyError) Error() string { return "another run holds the key" }

// diedError says that the message was given up before; its dead letter may still be missing.
type diedError struct{ record schema.InboxRecord }

func (e *diedError) Error() string { return "given up before: " + e.record.LastError }

// verdictError gives a message up without a run.
type verdictError struct {
	cause  schema.Cause
	reason string
}

func (e *verdictError) Error() string { return e.reason }

// storeError says that the inbox could not be asked, so that no handler ran.
type storeError struct{ err error }

func (e *storeError) Error() string { return fmt.Sprintf("inbox: %v", e.err) }
func (e *storeError) Unwrap() error { return e.err }
