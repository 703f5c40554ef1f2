// Package httprelay is a target that makes an HTTP request of each message, as its settings say: what an ILS, a CRM or any
// other API with JSON wants, without a line of Go.
//
// # An action
//
// [Config.Actions] has one entry for each action of a job (or name of an event): method, path, query, headers and body,
// with fields of the message in them as package fields has them. A field cannot change what is around it: in the path it
// is a part of one segment, in a body of JSON a string or a value. Everything is checked by [New]: paths stay below the
// base URL, methods are those of a list, and what is not known is refused.
//
// # What the answer means
//
// The first of these counts:
//
//	an entry of done              handled before: success
//	an entry of permanent         permanent
//	an entry of temporary         temporary; Retry-After counts
//	2xx that is not JSON          temporary, if a condition or report looks into it
//	success                       handled
//	401                           temporary: what proves who we are is of the settings, and no message can help it
//	301, 308                      permanent: the URL must be changed
//	408, 425, 429, other 3xx, 5xx temporary; Retry-After counts
//	other 4xx                     permanent
//	2xx, but not as success says  permanent
//	no or no complete answer      temporary
//	2xx that is too long          permanent
//	address not allowed           permanent, without a connection
//
// A [Condition] is a list of codes, or a [Check] of one place in the JSON, or both: many APIs answer 200 with an error
// inside. [Action.Report] hands a part of the answer back to whoever asked for the job's outcome, [Action.Reason] puts a
// text of the answer into the error.
//
// # At least once
//
// The key goes along in [Config.IdempotencyHeader]. That helps only where the API honours it, and few ILS do. Where it does
// not, there are three things to do, and the first two together are the usual ones: a [Lookup] asks first whether there is
// anything to do, in every attempt; [Action.Done] knows the answer with which the API refuses a second time; and a request
// that sets a state (PUT, DELETE) needs nothing but a done for "it is gone already". A look-up alone leaves a gap: two runs
// at the same time may both find nothing. Only the other side can close it.
//
// # Tokens
//
// With [AuthOAuth2] an access token is fetched with the client's credentials (RFC 6749, section 4.4) when the first message
// needs one. All messages of the target share it. It is renewed shortly before its end and, once in each request, when the API
// answers 401. Whatever the token endpoint answers, the message can be tried again: see docs/targets/http.md.
//
// # Secrets
//
// Errors, previews and the text form of a handler have no secret, no token, and of URLs at most the host; previews have
// the whole URL of an action.
package httprelay
