package schema

import (
	"maps"
	"strings"
)

// FromTopic returns the envelope of a message that is published through Watermill's message.Publisher. The topic is
// jobs.<target>.<action>, events.<public|internal>.<name> or, for internal events, events.<name>. The error is a
// [*ValidationError].
func FromTopic(topic, id string, metadata map[string]string, payload []byte, opts ...Option) (Envelope, error) {
	e := Envelope{ID: id, Metadata: maps.Clone(metadata), Payload: payload}
	kind, rest, _ := strings.Cut(topic, ".")
	first, second, two := strings.Cut(rest, ".")
	switch {
	case kind == "jobs" && two:
		e.Kind, e.Target, e.Name = KindJob, first, second
	case kind == "events" && two && (Visibility(first) == Public || Visibility(first) == Internal):
		e.Kind, e.Visibility, e.Name = KindEvent, Visibility(first), second
	case kind == "events" && rest != "":
		e.Kind, e.Visibility, e.Name = KindEvent, Internal, rest
	default:
		return e, &ValidationError{ID: OneLine(id), Faults: []Fault{{
			Field: "topic", Reason: "must be jobs.<target>.<action> or events.<public|internal>.<name>",
		}}}
	}
	for _, opt := range opts {
		opt(&e)
	}
	return e, nil
}
