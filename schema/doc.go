// Package schema is the contract of Millbridge: what a message is, how it looks on the wire and in a table, which
// names and sizes are allowed, how retries are spaced and of which kind an error is.
//
// Everything else imports this package and this package imports the standard library only. It holds values and pure
// functions; its types are safe for concurrent use as long as nobody writes to them.
//
// # Words
//
// An [Envelope] is a whole message. A job is an envelope for exactly one target and asks for one action; an event
// states a fact and has any number of subscribers. The outbox is the table an envelope is written to in the caller's
// transaction; a [Row] of it is a message that is not yet in its stream. The idempotency key makes a second delivery
// harmless; messages that share an ordering key keep the order in which they committed.
//
// # Errors
//
// Every error has an [ErrorKind], given where the error arises: see [KindOf].
package schema
