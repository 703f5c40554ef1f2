package peer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// ContentType is the media type of a message as [Encode] writes it.
const ContentType = "application/vnd.millbridge.message"

// Encode writes a message as its headers, an empty line and the payload. e must be valid and no replay.
func Encode(e schema.Envelope) []byte {
	b := schema.EncodeHeader(e)
	if source := schema.CloudEvent(e)[schema.HeaderSource]; source != "" {
		b = append(append(append(append(b, schema.HeaderSource...), ": "...), source...), "\r\n"...)
	}
	return append(append(b, "\r\n"...), e.Payload...)
}

var errFormat = errors.New("the body is no message")

// Decode reads what [Encode] has written. Its error is permanent.
func Decode(body []byte) (schema.Envelope, error) {
	block, payload, found := bytes.Cut(body, []byte("\r\n\r\n"))
	if !found || len(block) > schema.MaxHeaderBytes {
		return schema.Envelope{}, schema.WithKind(schema.Permanent, fmt.Errorf("%w: headers and an empty line are missing, or too long", errFormat))
	}
	header, err := schema.ParseHeader(body[:len(block)+len("\r\n")])
	if err != nil {
		return schema.Envelope{}, schema.WithKind(schema.Permanent, fmt.Errorf("%w: %w", errFormat, err))
	}
	what := strings.Join(header[schema.HeaderType], "")
	kind, rest, _ := strings.Cut(what, ".")
	if kind != string(schema.KindJob) && kind != string(schema.KindEvent) {
		return schema.Envelope{}, schema.WithKind(schema.Permanent, fmt.Errorf("%w: %s is %q", errFormat, schema.HeaderType, schema.OneLine(what)))
	}
	return schema.Decode(kind+"s."+rest, header, payload)
}
