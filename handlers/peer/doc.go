// Package peer passes messages on to another Millbridge by HTTP, where no NATS connection leads: [New] is the target that
// sends, [Receiver] the handler of the other side's HTTP server that takes them.
//
// # The request
//
// A POST whose body is the whole message, so that its signature covers everything:
//
//	headers of the wire format (docs/wire.md), a line "name: value" each, ended by CR LF
//	an empty line
//	the payload, byte for byte
//
// ce-type says what the message is: job.<target>.<action> or event.<visibility>.<name>. The headers of the request:
//
//	Content-Type        application/vnd.millbridge.message
//	Millbridge-From     the name of the bridge that sends, by which the receiver knows its keys
//	Webhook-Id          the message's id
//	Webhook-Timestamp   Unix seconds of this attempt
//	Webhook-Signature   as Standard Webhooks 1.0 asks, over id, timestamp and body; one for each secret
//
// A replay goes as the message that died. mb-reply-to stays behind: who asked for a report gets it from the bridge that
// has passed the message on. mb-via has the bridges passed, the one that sends at the end.
//
// # Once
//
// The receiver claims (sender, source, tenant, id) in its inbox in the transaction that puts the message into its outbox,
// and answers after the commit. A message that comes again, because the answer was lost, because somebody has recorded
// the request, or by way of another process on the same database, gets the same answer and is not published again, for
// as long as the inbox remembers it: 30 days. So each id of a sender is published once.
//
// The message keeps its id. Its idempotency key becomes "<sender>:<hash of its source>:<key>", so that no key of one
// bridge is taken for that of another.
//
// # Order
//
// With ordered: true on the target, messages with the same ordering key are sent one after the other, each when the one
// before is stored, and are committed there in that order.
//
// # What the answer means
//
//	200                         stored, now or before
//	401                         temporary, again after five minutes: keys or clocks are wrong, an operator must act
//	403                         permanent: the receiver does not take this target or event from us
//	409                         permanent: the id, or the key, was used for another message
//	413, 415, 422               permanent: too large, not ours, not valid, a loop
//	503                         temporary: the receiver is busy, or cannot store
//	others                      as package outbound judges them
//	no or no complete answer    temporary
//	address not allowed         permanent, without a connection
package peer
