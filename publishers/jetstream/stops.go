package jetstream

import (
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// A Stop is why a shard does not run until a person has decided: database and stream do not fit each other, and going
// on could lose or double messages.
type Stop string

// The stops. Each is answered by a [Repairer].
const (
	StopStreamBehind   Stop = "stream_behind"   // the stream was restored to an older state: its cursor is behind the ledger
	StopStreamLost     Stop = "stream_lost"     // the stream has no cursor although rows were sent: it was deleted, recreated or purged
	StopDatabaseBehind Stop = "database_behind" // the database was restored to an older state: its ledger is behind the cursor
	StopForeignOwner   Stop = "foreign_owner"   // the cursor was written by an owner that the database never knew
	StopUnreadable     Stop = "unreadable"      // what stands in the cursor's place is no cursor: a stranger has written it
	StopClone          Stop = "clone"           // the database is a copy of the one that the outbox id was given to
)

// Hint says in one line what to do.
func (s Stop) Hint() string {
	switch s {
	case StopStreamBehind:
		return "The stream was restored to an older state. Run `millbridge repair` to see what it has lost and to go on"
	case StopStreamLost:
		return "The stream was deleted, recreated or purged. Run `millbridge repair --stream-recreated` to see what it took along and to go on"
	case StopDatabaseBehind:
		return "The database was restored to an older state or has lost its last commits. Run `millbridge repair` to see which rows were already sent and to go on"
	case StopForeignOwner:
		return "Another copy of this database sends under the same outbox id, or the database has lost its last commits. " +
			"Make sure that no other copy runs, then run `millbridge repair`, or `millbridge repair --as-clone` for a copy that lives on its own"
	case StopUnreadable:
		return "Something else than Millbridge, or a newer one, has written to the cursor's subject. Run `millbridge repair` to see what can be recovered and to go on"
	case StopClone:
		return "The database was copied or restored elsewhere. Run `millbridge repair` if it replaces the original, `millbridge repair --as-clone` if both live on"
	}
	return ""
}

// A StopError reports a stopped shard.
type StopError struct {
	Shard  schema.ShardRef
	Stop   Stop
	Detail string
}

func (e *StopError) Error() string {
	return fmt.Sprintf("shard %s/%d is stopped (%s): %s", e.Shard.Stream, e.Shard.Shard, e.Stop, e.Detail)
}

// stopFor compares what database and stream say about a shard. known tells whether the database has handed out the
// token of the cursor's owner.
func stopFor(bound bool, ledger schema.Shard, c storedCursor, known bool) (Stop, string) {
	switch {
	case !bound:
		return StopClone, "the outbox id was given to another database"
	case c.Seq == 0 && ledger.Batch > 0:
		return StopStreamLost, fmt.Sprintf("the stream has no cursor, the ledger says batch %d with %d rows sent", ledger.Batch, ledger.Total)
	case c.Seq == 0:
		return "", ""
	case c.bad != nil:
		return StopUnreadable, fmt.Sprintf("message %d of the stream stands in the cursor's place and is none (%v)", c.Seq, c.bad)
	case ledger.Batch > c.Batch:
		return StopStreamBehind, fmt.Sprintf("the stream's cursor says batch %d, the ledger says %d: %d sent rows are not in the stream",
			c.Batch, ledger.Batch, ledger.Total-c.Total)
	case ledger.Batch < c.Removed:
		return StopDatabaseBehind, fmt.Sprintf("the ledger says batch %d, the cursor says that batch %d was removed", ledger.Batch, c.Removed)
	case !known:
		return StopForeignOwner, fmt.Sprintf("the cursor of batch %d was written by an owner this database does not know", c.Batch)
	}
	return "", ""
}
