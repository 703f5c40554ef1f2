// Package killpoint lets a test kill a process at an exact place. The places are named here and marked in the code by
// [At]. Only a build with the tag killpoints can stop there: in any other [At] is empty and the compiler leaves it out.
package killpoint

// A Name is a place.
type Name string

// Places in a program that publishes.
const (
	ProducerBeforeCommit Name = "producer.before-commit" // rows and messages are written, and nothing is committed
	ProducerAfterCommit  Name = "producer.after-commit"  // they are committed, and the program does not know it yet
)

// Places in a forwarder.
const (
	BeforeRead        Name = "forward.before-read"         // about to ask the outbox for rows
	AfterRead         Name = "forward.after-read"          // rows are read, and nothing of them is sent
	BeforeAdd         Name = "forward.before-add"          // in a batch, before one of its messages
	AfterAdd          Name = "forward.after-add"           // all messages of a batch are sent, and its cursor is not
	BeforeBatchCommit Name = "forward.before-batch-commit" // about to send the cursor, which stores the batch
	AfterBatchCommit  Name = "forward.after-batch-commit"  // the server has said that the batch is stored
	BeforeRemoval     Name = "forward.before-removal"      // about to remove what the cursor names
	AfterRemoval      Name = "forward.after-removal"       // it is removed, and the owner has not noted it
	BeforeRenewal     Name = "lease.before-renewal"        // about to renew the leases of shards
	AfterRenewal      Name = "lease.after-renewal"         // they are renewed
	BeforeTakeOver    Name = "takeover.before-cursor"      // the shard is ours in the database, and the stream has the old cursor
	AfterTakeOver     Name = "takeover.after-cursor"       // the stream has our cursor, and the rows it names are not removed
)

// Places in a process that handles messages.
const (
	BeforeHandler    Name = "handler.before-start"     // the key is ours, and the handler has not begun
	AfterHandler     Name = "handler.after-end"        // the handler has succeeded, and nobody knows
	BeforeEffect     Name = "effect.before"            // in the handler, before its effect
	AfterEffect      Name = "effect.after"             // in the handler, after its effect
	BeforeInbox      Name = "inbox.before-commit"      // about to note the key as done
	AfterInbox       Name = "inbox.after-commit"       // it is noted as done, and the message is not acked
	BeforeFailure    Name = "failure.before-record"    // about to note a failed attempt
	AfterFailure     Name = "failure.after-record"     // it is noted, and the message is not given back
	BeforeVerdict    Name = "verdict.before-record"    // about to note that a message is given up
	AfterVerdict     Name = "verdict.after-record"     // it is noted, and there is no dead letter
	BeforeLetter     Name = "letter.before-write"      // about to write a dead letter
	AfterLetter      Name = "letter.after-write"       // it is written, and the message is not acked
	BeforeAck        Name = "ack.before"               // about to tell the server that a message is handled
	AfterAck         Name = "ack.after"                // it is told, perhaps in vain
	BeforeRunRenewal Name = "run-lease.before-renewal" // about to renew the leases of running handlers
	AfterRunRenewal  Name = "run-lease.after-renewal"  // they are renewed
	BeforeReplay     Name = "replay.before-commit"     // about to commit a replay
	AfterReplay      Name = "replay.after-commit"      // it is committed, and the letter is still there
	AfterTombstone   Name = "replay.after-tombstone"   // the tombstone is in the letter's place
)

// Names lists all places.
var Names = []Name{
	ProducerBeforeCommit, ProducerAfterCommit,
	BeforeRead, AfterRead, BeforeAdd, AfterAdd, BeforeBatchCommit, AfterBatchCommit, BeforeRemoval, AfterRemoval,
	BeforeRenewal, AfterRenewal, BeforeTakeOver, AfterTakeOver,
	BeforeHandler, AfterHandler, BeforeEffect, AfterEffect, BeforeInbox, AfterInbox, BeforeFailure, AfterFailure,
	BeforeVerdict, AfterVerdict, BeforeLetter, AfterLetter, BeforeAck, AfterAck, BeforeRunRenewal, AfterRunRenewal,
	BeforeReplay, AfterReplay, AfterTombstone,
}
