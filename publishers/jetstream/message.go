package jetstream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// An encoder turns rows of one stream into messages, one after the other.
type encoder struct {
	subjects schema.Subjects
	stream   schema.Stream
	source   []string
	ttl      []string // nil for none
	header   schema.HeaderReader
	fault    error  // of the last row's header names
	subject  string // of the last row
	msg      nats.Msg
}

func newEncoder(subjects schema.Subjects, stream schema.Stream, outboxID string, ttl time.Duration) *encoder {
	e := &encoder{subjects: subjects, stream: stream, source: []string{schema.SourceOf(outboxID)}}
	if stream == schema.Events && ttl > 0 {
		e.ttl = []string{ttl.String()}
	}
	return e
}

// message returns what is sent for a row. It is good until the next call. The error is a *rowError: such a row was not
// written by this program.
func (e *encoder) message(r schema.Row) (*nats.Msg, error) {
	header, same, err := e.header.Read(r)
	if err == nil {
		if !same {
			e.fault = checkHeader(header)
			header[schema.HeaderSource] = e.source
			if e.ttl != nil {
				header[headerTTL] = e.ttl
			}
		}
		err = e.fault
	}
	if err == nil {
		err = e.address(r.Subject)
	}
	if err != nil {
		return nil, &rowError{fmt.Errorf("undecodable: %w", err)}
	}
	e.msg.Header, e.msg.Data, e.msg.Reply = header, r.Payload, ""
	return &e.msg, nil
}

// checkHeader looks at the names in a row's header.
func checkHeader(header map[string][]string) error {
	if len(header[schema.HeaderID]) == 0 {
		return fmt.Errorf("the header %s is missing", schema.HeaderID)
	}
	for name := range header {
		// The server would obey these, whoever wrote them.
		if len(name) >= 5 && strings.EqualFold(name[:5], "nats-") {
			return fmt.Errorf("the header %s is reserved", schema.OneLine(name))
		}
	}
	return nil
}

// address sets the message's subject, which is often that of the row before.
func (e *encoder) address(subject string) error {
	if subject == e.subject && subject != "" {
		return nil
	}
	kind, rest, _ := strings.Cut(subject, ".")
	if (e.stream == schema.Events) != (kind == "events") || kind != "events" && kind != "jobs" && kind != "replay" || rest == "" {
		return fmt.Errorf("subject %q does not belong to the stream of %s", schema.OneLine(subject), e.stream)
	}
	if len(subject) > 2*schema.MaxSubject {
		return errors.New("the subject is too long")
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n") {
			return fmt.Errorf("subject %q is none to publish on", schema.OneLine(subject))
		}
	}
	e.subject, e.msg.Subject = subject, e.subjects.Full(subject)
	return nil
}
