package schema

import "strings"

// startOfRest is how a header block begins that a database keeps without its first lines.
const startOfRest = "ce-"

// stored returns what a database keeps of the header block of e in this row: all but the lines that id and subject say,
// which are half of most blocks. If they do not say them, or the rest could not be told from a whole block, it is the
// block; rest is where they end.
func (r Row) stored(e Envelope, block []byte, rest int) []byte {
	var text [36]byte
	if string(r.ID.append(text[:0])) != e.ID || e.Replay != nil || !hasPrefix(block[rest:], startOfRest) {
		return block
	}
	return block[rest:]
}

// Block returns the row's whole header block, as [EncodeHeader] makes it.
func (r Row) Block() []byte {
	lines, n := r.implied("")
	if n == 0 {
		return r.Header
	}
	b := make([]byte, 0, 320+len(r.Header))
	for _, l := range lines[:n] {
		b = append(append(append(append(b, l.name...), ": "...), l.value...), "\r\n"...)
	}
	return append(b, r.Header...)
}

// implied returns the lines that the row's header is kept without, if it is. The type that the subject says may be known.
func (r *Row) implied(typ string) (lines [6]headerLine, n int) {
	if !hasPrefix(r.Header, startOfRest) {
		return lines, 0
	}
	if typ == "" {
		typ = typeOf(r.Subject)
	}
	if typ == "" {
		return lines, 0
	}
	id := r.ID.String()
	lines = [...]headerLine{
		{HeaderID, id}, {HeaderVersion, WireVersion}, {HeaderSpecVersion, specVersion}, {HeaderCEID, id}, {HeaderType, typ}, {HeaderKey, id},
	}
	if hasPrefix(r.Header, HeaderKey+": ") { // it has one that is not its id
		return lines, len(lines) - 1
	}
	return lines, len(lines)
}

type headerLine struct{ name, value string }

// typeOf returns the type of the messages with a subject; none if the subject does not say it.
func typeOf(subject string) string {
	kind, rest, _ := strings.Cut(subject, "s.")
	if kind != string(KindJob) && kind != string(KindEvent) {
		return ""
	}
	return kind + "." + rest
}

func hasPrefix(block []byte, prefix string) bool {
	return len(block) >= len(prefix) && string(block[:len(prefix)]) == prefix
}
