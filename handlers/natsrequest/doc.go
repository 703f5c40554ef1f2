// Package natsrequest is a target that asks a service on NATS and waits for its reply: one subject for each action, as
// the services of nats.go's package micro and of other languages listen on.
//
// # The request
//
// The subject is the prefix, a dot and the action. The payload is the body, byte for byte; the headers are those of the
// wire format (docs/wire.md), ce-idempotencykey among them. A replay goes as the message that died.
//
// # The reply
//
// A reply without error headers is success. Its body is reported to whoever asked for the outcome: JSON as it is,
// anything else as a text. An error is told by the headers of NATS ADR-32:
//
//	Nats-Service-Error-Code 400 to 499        permanent
//	408, 429                                  temporary
//	500 to 599, other codes and none at all   temporary
//	a reply larger than max_reply             permanent: what was asked for is done, only its answer is not taken
//	no service on the subject                 temporary
//	no reply within the attempt's time        counts as an attempt, and is tried again
//	no connection                             temporary
//	sign-in refused, subject not permitted    temporary, again after five minutes
//	request larger than the server takes      permanent
//
// # Once
//
// A reply can be lost after the service has done its work; then it is asked again, with the same key. The service must
// honour it: remember the key with what it has done, and answer the second time what it has answered the first.
package natsrequest
