package router

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// An Inbox remembers which keys were handled, per handler. Both stores have one.
type Inbox interface {
	// Claim asks for a run under a lease, which it takes.
	Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error)
	// Done marks the run's key as handled; [schema.ErrLeaseLost] if the run has lost it.
	Done(ctx context.Context, run schema.Run) error
	// Fail records a failure or a verdict and ends the lease; [schema.ErrLeaseLost] if another run holds the key.
	Fail(ctx context.Context, run schema.Run, failure schema.Failure) (schema.InboxRecord, error)
	// Free ends the lease and records nothing.
	Free(ctx context.Context, run schema.Run) error
	// Extend renews the leases of these runs and returns the owners of those that still hold theirs.
	Extend(ctx context.Context, runs []schema.Run, lease time.Duration) (held []string, err error)
	// Settled notes that a message is done with although the inbox row of its key stands for another. Again changes nothing.
	Settled(ctx context.Context, run schema.Run) error
	// Unit runs f in one transaction.
	Unit(ctx context.Context, f func(schema.Unit) error) error
}

// letterBox keeps dead letters. Writing the letter of one (handler, message, replay) again changes nothing.
type letterBox interface {
	Write(ctx context.Context, letter schema.DeadLetter) error
}
