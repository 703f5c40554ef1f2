// Package natsrelay is a target that passes messages on to another NATS account or cluster, whose JetStream stores them
// before they count as handled: for another Millbridge ([Config.Prefix]) or for any other program ([Config.Subject]).
//
// # What is published
//
// The payload byte for byte, and the headers of the wire format (docs/wire.md) as they are: id, source, keys, context and
// metadata. A replay goes as the message that died, since to the other side it is one more attempt. mb-reply-to stays
// behind: who asked for a report gets this handler's [Stored] from this bridge. Added are:
//
//	mb-via                the bridges passed, this one at the end
//	Nats-Msg-Id           id, source, tenant and subject
//	Nats-TTL              of events for another Millbridge
//	Nats-Expected-Stream  of messages for another Millbridge: no other stream takes them
//
// # Once
//
// A publishing whose answer is lost is done again. Within the window of the stream there (two minutes, unless it says
// otherwise) its server drops the second one; after a restart it knows the ids of those messages only that it still has.
// Otherwise the message may be in the stream twice. A Millbridge on the other side handles it once all the same, because
// its inbox remembers source and key for 30 days; any other program has to do the same, or the stream's window must be
// longer than the target's retries. No option gives more: JetStream has no memory beyond the window unless each message
// has a subject of its own.
//
// # Order
//
// With ordered: true, messages with the same ordering key are published one after the other, each when the one before is
// stored, and are in the stream there in that order. An attempt that was given up and arrives late is dropped as
// any second one is.
//
// # Loops
//
// A message that comes back to a bridge whose name is in its mb-via already, or that has passed [schema.MaxVia], is a
// permanent [schema.ErrLoop].
//
// # Errors
//
//	no stream takes the subject, or it has no leader   temporary
//	only a stream of others takes it                   temporary
//	the stream or the account there is full            temporary
//	message or headers larger than they may be         permanent
//	no connection, no answer in time                   temporary
//	sign-in refused, subject not permitted             temporary, again after five minutes
//	a loop                                             permanent
//	any other error of the server                      temporary
package natsrelay
