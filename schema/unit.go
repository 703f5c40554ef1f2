package schema

import "context"

// A Unit is one transaction of a store, for code that need not know which database it is in.
type Unit interface {
	// Append puts envelopes into the outbox.
	Append(ctx context.Context, envs []Envelope) ([]Receipt, error)
	// Claim asks the inbox for a run whose end is the end of this transaction.
	Claim(ctx context.Context, run Run) (ClaimResult, error)
	// Done notes that a run under a lease has handled its message. It counts when the transaction commits. The error is
	// [ErrLeaseLost] if another run has taken over; then the transaction must not commit.
	Done(ctx context.Context, run Run) error
	// Fail notes a failure or a verdict and ends the run's lease. It counts when the transaction commits. The error is
	// [ErrLeaseLost] if the key has been settled or is in other hands.
	Fail(ctx context.Context, run Run, f Failure) (InboxRecord, error)
	// LoadSaga returns a saga as it stands and keeps others from changing it until the transaction ends.
	LoadSaga(ctx context.Context, saga, id string) (rec SagaRecord, found bool, err error)
	// SaveSaga writes a saga's new record with the event that led to it, whose number is the record's version: 1 for a
	// new saga, else one more than the version that was loaded. If somebody was quicker, the error is
	// [ErrRetryTransaction]. The store fills in the times.
	SaveSaga(ctx context.Context, rec SagaRecord, ev SagaEvent) error
	// ResetForReplay takes a dead key back into work; false if somebody was quicker.
	ResetForReplay(ctx context.Context, key InboxKey, from int) (bool, error)
	// Drop turns a key that is dead at this replay number into a dropped one; false if somebody was quicker. Without a
	// row it inserts one and returns true.
	Drop(ctx context.Context, key InboxKey, from int) (bool, error)
	// Try runs f and undoes what it wrote in this transaction if it fails; the transaction can go on either way. The error
	// is f's, joined with that of undoing if that fails too: then the transaction is lost.
	Try(ctx context.Context, f func() error) error
	// Tx is the transaction itself, a pgx.Tx or an *sql.Tx, or the error with which it could not begin: SQLite's begins
	// when it is first needed.
	Tx() any
}

// A RowReader reads the rows of one outbox shard that are safe to send, for code that need not know the database.
type RowReader interface {
	Read(ctx context.Context, p ReadParams) ([]Row, error)
	// Reset makes the next read start from the shard's first row.
	Reset()
	// Look returns what the reader knows before such a read, for the store's Peek.
	Look(p ReadParams) Look
}
