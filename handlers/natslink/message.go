package natslink

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Message returns e as a message on subject, in the wire format. e has its [schema.Envelope.First] form.
func Message(subject string, e schema.Envelope) (*nats.Msg, error) {
	header, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	if source := schema.CloudEvent(e)[schema.HeaderSource]; source != "" {
		header[schema.HeaderSource] = []string{source}
	}
	return &nats.Msg{Subject: subject, Header: header, Data: e.Payload}, nil
}

// Preview shows a message that would be sent.
func Preview(do string, msg *nats.Msg) handlers.Preview {
	p := handlers.Preview{Do: fmt.Sprintf("%s %s", do, msg.Subject), Header: make(map[string]string, len(msg.Header)), Body: string(msg.Data)}
	for name := range msg.Header {
		p.Header[name] = msg.Header[name][0]
	}
	return p
}
