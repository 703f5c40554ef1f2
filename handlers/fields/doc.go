// Package fields fills texts in a target's settings with the fields of a message: "contacts/{{.payload.customer.id}}".
//
// A hole is "{{.", a path of names with dots, and "}}". That is all: no functions, no conditions, nothing that runs. "{{"
// cannot be written otherwise.
//
//	{{.id}}                      the message's id; for a replay the id of the message that died first
//	{{.key}}                     the idempotency key
//	{{.kind}} {{.target}}        "job" or "event", and the job's target
//	{{.name}} {{.type}}          the job's action or the event's name, and the CloudEvents type
//	{{.tenant}} {{.actor}}       as they were published; empty if they were not
//	{{.request_id}} {{.ordering_key}} {{.source}} {{.content_type}}
//	{{.time}}                    when the message was made, as 2026-11-30T15:04:05.6Z
//	{{.metadata.colour}}         an entry of the metadata
//	{{.payload}}                 the whole payload
//	{{.payload.items.0.id}}      a field of a payload in JSON; a number counts in a list, from 0
//
// # Where a field ends up
//
// [Parse] is told what the text is, and a field cannot change what is around it:
//
//   - [Text]: the field as it is.
//   - [Header]: the field must be fit for a header's value: no line breaks and nothing but ASCII.
//   - [URL]: percent-encoded, but for letters, digits and "-._~". In the path a field is one segment or a part of one: it
//     must not be empty, and no segment may become "." or "..". There are no holes before the path.
//   - [JSON]: inside a JSON string the field is escaped; in the place of a value it is the value as the payload has it,
//     or a JSON string. Whatever is filled in, the result is JSON.
//
// # What goes wrong
//
// Parse reports everything that is wrong with a text, by its position: it can be done once, when the target is made. A
// field that a message does not have, or that has no text because it is null, a list or an object, is a permanent error
// that names the path: trying again cannot help. So is a result that becomes too long. No error quotes the text around
// the holes or the field's value.
package fields
