// Package webhook is a target that posts each message to a URL, signed as Standard Webhooks 1.0 asks, and the check
// that a receiver written in Go makes.
//
// # The request
//
// The body is the payload's bytes, untouched. Content-Type is the envelope's. The headers are:
//
//	webhook-id         the message's id; for a replay the id of the message that died. The same on every attempt
//	webhook-timestamp  Unix seconds of this attempt
//	webhook-signature  one "v1,<HMAC-SHA256 in base64>" over id.timestamp.body for each secret
//	Idempotency-Key    the idempotency key, percent-encoded like all ce- values
//	ce-...             the CloudEvents attributes in binary mode
//	traceparent, tracestate
//
// Metadata is not sent: its names are the caller's and could be headers that mean something to the receiver.
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
// A body longer than [Config.MaxResponse] is not read further and counts as complete.
//
// # What may be reached
//
// Public addresses only, unless [Config.Network] says otherwise; how that is kept is written in package
// [github.com/millbridge/millbridge/handlers/outbound].
//
// Errors, logs and the text form of a [Config] have no secret, no header value, and of the URL only the host.
package webhook
