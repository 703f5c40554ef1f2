package schema

import (
	"bytes"
	"strings"
)

// startOfRest is how a header block begins that a database keeps without its first lines.
const startOfRest = "ce-"

// StoredHeader returns the row's header block as a database keeps it: without the lines that id and subject say, which
// are half of most blocks. A block that does not begin with them, or whose rest could not be told from a whole one, is
// kept as it is. See [Row.RestoreHeader].
func (r Row) StoredHeader() []byte {
	var some [320]byte
	lines, key := impliedLines(some[:0], r.ID, r.Subject)
	rest, ok := bytes.CutPrefix(r.Header, lines[:key])
	if !ok {
		return r.Header
	}
	after := bytes.TrimPrefix(rest, lines[key:])
	if own := len(after) == len(rest); !hasPrefix(after, startOfRest) || hasPrefix(after, HeaderKey+": ") != own {
		return r.Header
	}
	return after
}

// RestoreHeader makes the row's header block of what [Row.StoredHeader] has left of it. The row has its id and subject.
func (r *Row) RestoreHeader(stored []byte) {
	r.Header = stored
	if !hasPrefix(stored, startOfRest) {
		return
	}
	var some [320]byte
	lines, key := impliedLines(some[:0], r.ID, r.Subject)
	if hasPrefix(stored, HeaderKey+": ") {
		lines = lines[:key]
	}
	r.Header = append(append(make([]byte, 0, len(lines)+len(stored)), lines...), stored...)
}

func hasPrefix(block []byte, prefix string) bool {
	return len(block) >= len(prefix) && string(block[:len(prefix)]) == prefix
}

// impliedLines appends to b the first lines of the header block of a message with this id and subject. The last of them,
// from key on, says that the message has no idempotency key but its id. There are none for a subject that does not say
// the message's type.
func impliedLines(b []byte, id UUID, subject string) (lines []byte, key int) {
	kind, rest, _ := strings.Cut(subject, "s.")
	if kind != string(KindJob) && kind != string(KindEvent) {
		return b, len(b)
	}
	b = id.append(append(b, HeaderID+": "...))
	b = append(b, "\r\n"+HeaderVersion+": "+WireVersion+"\r\n"+HeaderSpecVersion+": "+specVersion+"\r\n"+HeaderCEID+": "...)
	b = append(id.append(b), "\r\n"+HeaderType+": "...)
	b = append(append(append(b, kind...), '.'), rest...)
	b = append(b, "\r\n"...)
	key = len(b)
	b = id.append(append(b, HeaderKey+": "...))
	return append(b, "\r\n"...), key
}
