// Package webhook is a target that posts each message to a URL, signed as Standard Webhooks 1.0 asks, and a [Receiver] for
// programs in Go that get such requests.
//
// # The request
//
// The body is the payload's bytes, untouched, unless [Config.Payload] makes another one of the message's fields. The
// headers are:
//
//	webhook-id         the message's id; for a replay the id of the message that died. The same on every attempt
//	webhook-timestamp  Unix seconds of this attempt
//	webhook-signature  for each secret "v1," and an HMAC-SHA256 or "v1a," and an ed25519 signature, over id.timestamp.body
//	Idempotency-Key    the idempotency key, percent-encoded like all ce- values
//	Content-Type       that of the payload
//	ce-...             the CloudEvents attributes in binary mode; see [Format] for the others
//	traceparent, tracestate
//
// and those of [Config.Headers]. Metadata is not sent: its names are the caller's and could be headers that mean something
// to the receiver. A field of [Config.Payload] or [Config.Headers] that a message does not have is a permanent error that
// names it.
//
// # What the answer means
//
//	2xx and a complete body         handled
//	301, 308                        permanent: the URL must be changed
//	408, 425, 429 and other 3xx     temporary
//	5xx                             temporary
//	410                             permanent, and [handlers.Gone]: the receiver wants no more messages
//	other 4xx and codes             permanent
//	no or no complete answer        temporary
//	address not allowed             permanent, without a connection
//
// A temporary answer may carry Retry-After in seconds or as a date. It replaces the policy's wait, but for no longer
// than [Config.RetryAfterMax]; what is no number above 0 and no date to come is ignored. Redirects are never followed.
// A body longer than [Config.MaxResponseBytes] is not read further and counts as complete; one that is compressed, although
// that is not asked for, is not unpacked.
//
// # May it run twice?
//
// Yes, if the receiver remembers ids or keys: every attempt and every replay has the same webhook-id and Idempotency-Key,
// and only timestamp and signature differ. A [Receiver] with a [Ledger] does so.
//
// # What may be reached
//
// Public addresses only, unless [Config.Settings] say otherwise; how that is kept is written in package
// [github.com/millbridge/millbridge/handlers/outbound].
//
// Errors, logs and previews have no secret, of a configured header only the message's fields in it, and of the URL only
// the host.
package webhook
