package schema

import "context"

// A Unit is one transaction of a store, for code that need not know which database it is in.
type Unit interface {
	// Append puts envelopes into the outbox.
	Append(ctx context.Context, envs []Envelope) ([]Receipt, error)
	// Claim asks the inbox for a run whose end is the end of this transaction.
	Claim(ctx context.Context, run Run) (ClaimResult, error)
	// ResetForReplay takes a dead key back into work; false if somebody was quicker.
	ResetForReplay(ctx context.Context, key InboxKey, from int) (bool, error)
	// Drop turns a key that is dead at this replay number into a dropped one; false if somebody was quicker. Without a
	// row it inserts one and returns true.
	Drop(ctx context.Context, key InboxKey, from int) (bool, error)
	// Tx is the transaction itself, a pgx.Tx or an *sql.Tx, or the error with which it could not begin: SQLite's begins
	// when it is first needed.
	Tx() any
}

// A RowReader reads the rows of one outbox shard that are safe to send, for code that need not know the database.
type RowReader interface {
	Read(ctx context.Context, p ReadParams) ([]Row, error)
	// Reset makes the next read start from the shard's first row.
	Reset()
}
