package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Header names on the wire. They are written as here and read in any case. The ce- names follow the CloudEvents NATS
// binding in binary mode (https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/nats-protocol-binding.md);
// the first one is Watermill's.
const (
	HeaderID           = "_watermill_message_uuid"
	HeaderVersion      = "mb-version"
	HeaderEncoded      = "mb-encoded" // space-separated metadata keys whose values are percent-encoded
	HeaderReplayOf     = "mb-replay-of"
	HeaderReplay       = "mb-replay"
	HeaderReplaySource = "mb-replay-source" // source of the message that is replayed; the replay has an own one
	HeaderReplyTo      = "mb-reply-to"      // <target>.<action> of the job that reports the outcome
	HeaderReplyRef     = "mb-reply-ref"     // what the report gives back
	HeaderVia          = "mb-via"           // space-separated names of the bridges passed
	HeaderSpecVersion  = "ce-specversion"
	HeaderCEID         = "ce-id"
	HeaderSource       = "ce-source"
	HeaderType         = "ce-type"
	HeaderTime         = "ce-time"
	HeaderContentType  = "ce-datacontenttype"
	HeaderKey          = "ce-idempotencykey"
	HeaderOrderingKey  = "ce-partitionkey" // the CloudEvents partitioning extension
	HeaderTenant       = "ce-tenant"
	HeaderActor        = "ce-actor"
	HeaderRequestID    = "ce-requestid"
	HeaderTraceParent  = "traceparent"
	HeaderTraceState   = "tracestate"
)

// WireVersion is the major version of the wire format that this package writes and understands.
const WireVersion = "1"

const specVersion = "1.0" // of CloudEvents

// SourceOf returns the CloudEvents source of messages that an outbox sends.
func SourceOf(outboxID string) string { return "/millbridge/" + outboxID }

// EncodeHeader returns the header block that e is sent with: "name: value" lines ending in CR LF, in a fixed order. The
// forwarder adds the source and what the broker needs. e must be valid.
func EncodeHeader(e Envelope) []byte {
	block, _ := encodeHeader(e)
	return block
}

// encodeHeader also says where the lines end that [Row.stored] may leave out.
func encodeHeader(e Envelope) (block []byte, rest int) {
	const fixed = 400 // our names, the id three times, the time
	size := fixed + len(e.Target) + len(e.Name) + len(e.Key) + len(e.OrderingKey) + len(e.Tenant) + len(e.Actor) + len(e.TraceParent)
	var some [16]string // on the stack, as more would not be
	keys := some[:0]
	for k, v := range e.Metadata {
		keys = append(keys, k)
		size += len(k) + len(": \r\n") + len(v)
	}
	slices.Sort(keys)
	b := make([]byte, 0, size)
	line := func(name, value string) {
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	}
	plain := func(name, value string) {
		if value != "" {
			line(name, value)
		}
	}
	line(HeaderID, e.ID)
	line(HeaderVersion, WireVersion)
	e.cloudEvent(func(name, value string) {
		before := len(b)
		line(name, value)
		switch {
		case name != HeaderKey:
		case value == e.ID:
			rest = len(b)
		default:
			rest = before
		}
	})
	plain(HeaderTraceParent, e.TraceParent)
	plain(HeaderTraceState, e.TraceState)
	plain(HeaderVia, strings.Join(e.Via, " "))
	if r := e.Replay; r != nil {
		line(HeaderReplayOf, r.Of)
		line(HeaderReplay, strconv.Itoa(r.Number))
		plain(HeaderReplaySource, percentEncode(e.Source, unsafeInCloudEvents))
	}
	if r := e.ReplyTo; r != nil {
		line(HeaderReplyTo, r.Target+"."+r.Action)
		plain(HeaderReplyRef, percentEncode(r.Ref, unsafeInCloudEvents))
	}
	var encoded []string
	for _, k := range keys {
		v := e.Metadata[k]
		if !headerSafe(v) {
			encoded = append(encoded, k)
			v = percentEncode(v, unsafeInCloudEvents)
		}
		line(k, v)
	}
	if len(encoded) > 0 {
		line(HeaderEncoded, strings.Join(encoded, " "))
	}
	return b, rest
}

// CloudEvent returns e's CloudEvents attributes as headers in binary mode, the source included, as the bindings for
// NATS and HTTP write them.
func CloudEvent(e Envelope) map[string]string {
	attributes := make(map[string]string, 12)
	if e.Source != "" {
		attributes[HeaderSource] = percentEncode(e.Source, unsafeInCloudEvents)
	}
	e.cloudEvent(func(name, value string) { attributes[name] = value })
	return attributes
}

// cloudEvent calls attribute for each CloudEvents attribute but the source, in a fixed order.
func (e Envelope) cloudEvent(attribute func(header, value string)) {
	coded := func(name, value string) {
		if value != "" {
			attribute(name, percentEncode(value, unsafeInCloudEvents))
		}
	}
	attribute(HeaderSpecVersion, specVersion)
	attribute(HeaderCEID, e.ID)
	coded(HeaderType, e.Type())
	coded(HeaderKey, e.IdempotencyKey())
	if !e.Time.IsZero() {
		attribute(HeaderTime, e.Time.UTC().Format(time.RFC3339Nano))
	}
	coded(HeaderContentType, e.ContentType)
	coded(HeaderOrderingKey, e.OrderingKey)
	coded(HeaderTenant, e.Tenant)
	coded(HeaderActor, e.Actor)
	coded(HeaderRequestID, e.RequestID)
}

// ParseHeader reads a block written by [EncodeHeader] into the map that NATS clients use.
func ParseHeader(block []byte) (map[string][]string, error) {
	var h HeaderReader
	header, _, err := h.finish(h.lines(string(block)))
	return header, err
}

// A HeaderReader reads the headers of many rows, one after the other, into the same map. It is not safe for concurrent use.
type HeaderReader struct {
	header        map[string][]string
	names, values []string // of the lines, in their order
	n             int      // lines read of the block
	same          bool     // up to here the names are those of the block before
	subject, typ  string   // of the row before
}

// Read returns a row's header, and whether its names are those of the row before. The map is good until the next call.
// What is put into it beside them stays there for as long as the names are the same.
func (h *HeaderReader) Read(r Row) (header map[string][]string, same bool, err error) {
	if r.Subject != h.subject {
		h.subject, h.typ = r.Subject, typeOf(r.Subject)
	}
	lines, n := r.implied(h.typ)
	for i := range lines[:n] {
		h.line(lines[i].name, lines[i].value)
	}
	return h.finish(h.lines(string(r.Header)))
}

// lines reads a block, or what comes after the first lines of one.
func (h *HeaderReader) lines(s string) error {
	if cap(h.names) == 0 {
		n := strings.Count(s, "\n")
		h.names, h.values = make([]string, 0, n), make([]string, 0, n)
	}
	for s != "" {
		end := strings.IndexByte(s, '\n')
		colon := strings.IndexByte(s, ':')
		if end < 0 || colon <= 0 || colon+2 >= end || s[colon+1] != ' ' || s[end-1] != '\r' {
			line, _, _ := strings.Cut(s, "\n")
			return fmt.Errorf("header block has a bad line %q", OneLine(line))
		}
		h.line(s[:colon], s[colon+2:end-1])
		s = s[end+1:]
	}
	return nil
}

// line takes the next line. As long as the names are the same, the map has the value as soon as the list has it.
func (h *HeaderReader) line(name, value string) {
	if h.n == 0 {
		h.same = h.header != nil
	}
	if h.n < len(h.names) && h.names[h.n] == name {
		h.values[h.n] = value
	} else {
		h.same = false
		h.names, h.values = append(h.names[:h.n], name), append(h.values[:h.n], value)
	}
	h.n++
}

// finish ends a block.
func (h *HeaderReader) finish(err error) (header map[string][]string, same bool, _ error) {
	n := h.n
	h.n = 0
	if err == nil && n > 0 && h.same && n == len(h.names) {
		return h.header, true, nil
	}
	h.names, h.values = h.names[:n], h.values[:n]
	if h.header == nil {
		h.header = make(map[string][]string, n+8)
	}
	clear(h.header)
	for i, name := range h.names {
		h.header[name] = h.values[i : i+1 : i+1]
		if len(h.header) <= i && err == nil {
			err = fmt.Errorf("header block has the name %q twice", OneLine(name))
		}
	}
	if err != nil {
		h.names = h.names[:0] // the next one is not like it
		return nil, false, err
	}
	return h.header, false, nil
}

// isBroker reports whether a lower-case header name belongs to the broker or its client.
func isBroker(low string) bool {
	return strings.HasPrefix(low, "nats-") || low == "status" || low == "description"
}

// isReserved reports whether a header name, in any case, is not the caller's to use.
func isReserved(name string) bool { return isReservedLow(strings.ToLower(name)) }

func isReservedLow(low string) bool {
	switch low {
	case HeaderID, HeaderTraceParent, HeaderTraceState:
		return true
	}
	return isBroker(low) || strings.HasPrefix(low, "mb-") || strings.HasPrefix(low, "ce-")
}

// headerSafe reports whether a header can carry s unchanged: valid UTF-8, no control characters, no outer blanks.
// nats.go trims values and turns line breaks into spaces without an error.
func headerSafe(s string) bool {
	if s == "" {
		return true
	}
	if s[0] == ' ' || s[len(s)-1] == ' ' || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

const hexDigits = "0123456789ABCDEF"

// percentEncode writes every unsafe byte as %XX; '%' must be one.
func percentEncode(s string, unsafe *[256]bool) string {
	n := 0
	for i := range len(s) {
		if unsafe[s[i]] {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; unsafe[c] {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// unsafeInCloudEvents are space, '"', '%' and all bytes outside U+0021 to U+007E, as in the CloudEvents bindings.
var unsafeInCloudEvents = bytesThat(func(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' })

func bytesThat(are func(c byte) bool) *[256]bool {
	var set [256]bool
	for c := range set {
		set[c] = are(byte(c))
	}
	return &set
}

// percentDecode undoes percentEncode; a '%' that starts no code stays as it is.
func percentDecode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(n))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
