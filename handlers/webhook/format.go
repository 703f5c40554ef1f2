package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
)

// Format says how a message's CloudEvents attributes are sent. The signature covers the body only: who must trust the
// attributes, too, takes [Structured].
type Format uint8

const (
	Binary     Format = iota // in ce- headers, the payload is the body
	Structured               // in the body, a CloudEvent in JSON with the payload in it
	Raw                      // not at all, the payload is the body
)

var formatNames = [...]string{"binary", "structured", "raw"}

// String returns the format's name in configurations.
func (f Format) String() string {
	if int(f) >= len(formatNames) {
		return fmt.Sprintf("unknown(%d)", uint8(f))
	}
	return formatNames[f]
}

// MarshalText returns the format's name.
func (f Format) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the format's name; empty means [Binary].
func (f *Format) UnmarshalText(text []byte) error {
	i := slices.Index(formatNames[:], string(text))
	if i < 0 && len(text) > 0 {
		return fmt.Errorf("must be one of %s", strings.Join(formatNames[:], ", "))
	}
	*f = Format(max(i, 0))
	return nil
}

// write adds what the format says to the header and returns the body.
func (f Format) write(h http.Header, env schema.Envelope) []byte {
	contentType := env.ContentType
	if contentType == "" || !isHeaderValue(contentType) { // messages of foreign publishers may have anything there
		contentType = "application/octet-stream"
	}
	h.Set("Content-Type", contentType)
	switch f {
	case Binary:
		for name, value := range schema.CloudEvent(env) {
			if name != schema.HeaderContentType { // section 3.1.1 of the HTTP binding: it is in Content-Type, and only there
				h.Set(name, value)
			}
		}
	case Structured:
		h.Set("Content-Type", "application/cloudevents+json")
		return structured(env)
	}
	return env.Payload
}

// structured returns the message as a CloudEvent in the JSON format, section 3 of
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md.
func structured(env schema.Envelope) []byte {
	attributes := schema.CloudEvent(env)
	b := make([]byte, 0, 256+len(env.Payload)*4/3)
	member := func(name string, value []byte) {
		b = append(append(b, `,"`+name+`":`...), value...)
	}
	for _, header := range slices.Sorted(maps.Keys(attributes)) {
		value, err := url.PathUnescape(attributes[header]) // headers are percent-encoded, JSON is not
		if err != nil {
			value = attributes[header]
		}
		member(strings.TrimPrefix(header, "ce-"), quoted(value))
	}
	switch {
	case len(env.Payload) == 0:
	case isJSON(env.ContentType) && utf8.Valid(env.Payload) && json.Valid(env.Payload):
		member("data", env.Payload)
	case isText(env.ContentType) && utf8.Valid(env.Payload):
		member("data", quoted(string(env.Payload)))
	default:
		member("data_base64", quoted(base64.StdEncoding.EncodeToString(env.Payload)))
	}
	b[0] = '{'
	return append(b, '}')
}

func quoted(s string) []byte {
	text, _ := json.Marshal(s) // strings always can be
	return text
}

// isJSON is what section 3.1.1 calls a content type that declares JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// isText reports whether a payload of this type, if it is UTF-8, is a text.
func isText(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return false
	}
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
}
