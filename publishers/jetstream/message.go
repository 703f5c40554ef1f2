package jetstream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// An encoder turns rows of one stream into messages.
type encoder struct {
	subjects schema.Subjects
	stream   schema.Stream
	source   []string
	ttl      []string // nil for none
}

func newEncoder(subjects schema.Subjects, stream schema.Stream, outboxID string, ttl time.Duration) *encoder {
	e := &encoder{subjects: subjects, stream: stream, source: []string{schema.SourceOf(outboxID)}}
	if stream == schema.Events && ttl > 0 {
		e.ttl = []string{ttl.String()}
	}
	return e
}

// message returns what is sent for a row. The error is a *rowError: such a row was not written by this program.
func (e *encoder) message(r schema.Row) (*nats.Msg, error) {
	header, err := schema.ParseHeader(r.Header)
	if err == nil {
		err = e.check(r.Subject, header)
	}
	if err != nil {
		return nil, &rowError{fmt.Errorf("undecodable: %w", err)}
	}
	header[schema.HeaderSource] = e.source
	if e.ttl != nil {
		header[headerTTL] = e.ttl
	}
	return &nats.Msg{Subject: e.subjects.Full(r.Subject), Header: header, Data: r.Payload}, nil
}

func (e *encoder) check(subject string, header map[string][]string) error {
	if len(header[schema.HeaderID]) == 0 {
		return fmt.Errorf("the header %s is missing", schema.HeaderID)
	}
	for name := range header {
		// The server would obey these, whoever wrote them.
		if len(name) >= 5 && strings.EqualFold(name[:5], "nats-") {
			return fmt.Errorf("the header %s is reserved", schema.OneLine(name))
		}
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
	return nil
}
