// Package jetstream moves outbox rows to NATS JetStream, each exactly once and in order.
//
// [EnsureStreams] creates the streams or refuses ones that would lose messages. A [Forwarder] reads rows, writes them
// as atomic batches and removes them from the database. [NewRepairer] answers for the cases in which database and
// stream no longer fit each other and a person must decide.
//
// # How a row is moved
//
// The rows of a stream are divided into shards. A shard has one owner at a time, by a lease in the database; but the
// lease only saves work. What keeps two owners apart is the cursor: a message in the stream, one per shard, that is
// written last in each batch and only if it replaces exactly the cursor the owner knows. A batch of a former owner is
// refused whole.
//
// The cursor also names each row it was written with, and carries the names of earlier rows forward until their
// removal from the database is known to be durable. What is removed is what the cursor in the stream names, never what
// somebody remembers having sent: after a crash or an unknown outcome the next owner reads the cursor, takes it over,
// removes the rows it names and goes on.
//
// # Feeds
//
// A [Feed] empties another table into the outbox, in transactions that do nothing else. NewStock of schema/postgres makes
// one of a stock Watermill outbox, so that publishers that write it need not change on the day on which the forwarder does.
//
// # Safety
//
// A Forwarder is safe for concurrent use. Any number of processes may run one on the same database.
package jetstream
