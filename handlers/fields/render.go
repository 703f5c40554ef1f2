package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
)

// IsStatic reports whether the text has no holes.
func (t *Template) IsStatic() bool { return len(t.parts) <= 1 }

// Render returns the text with the message's fields in its holes. The error is permanent.
func (t *Template) Render(m *Message) (string, error) {
	out, err := t.fill(m, func(literal string) string { return literal })
	if err == nil {
		err = t.check(out)
	}
	if err != nil {
		return "", schema.WithKind(schema.Permanent, err)
	}
	return out, nil
}

// Mask is Render for previews of a text that is secret but for its holes: what is around them becomes "***".
func (t *Template) Mask(m *Message) (string, error) {
	if _, err := t.Render(m); err != nil {
		return "", err
	}
	return t.fill(m, func(literal string) string { return strings.Repeat("***", min(1, len(literal))) })
}

func (t *Template) fill(m *Message, literal func(string) string) (string, error) {
	limit := MaxText
	if t.kind == Header || t.kind == URL {
		limit = MaxLine
	}
	var out strings.Builder
	for _, p := range t.parts {
		out.WriteString(literal(p.text))
		if p.path != nil {
			value, err := p.value(m)
			if err != nil {
				return "", fmt.Errorf("{{.%s}}: %w", strings.Join(p.path, "."), err)
			}
			out.WriteString(value)
		}
		if out.Len() > limit {
			return "", fmt.Errorf("filled in, it is longer than %d bytes", limit)
		}
	}
	return out.String(), nil
}

// value returns what stands in the part's hole.
func (p part) value(m *Message) (string, error) {
	if p.place == isValue {
		return m.json(p.path)
	}
	value, err := m.text(p.path)
	switch {
	case err != nil:
		return "", err
	case p.place == inPath && value == "":
		return "", errors.New("is empty, and the path would be another one")
	case p.place == inPath || p.place == inQuery:
		return percent(value), nil
	case p.place == inString:
		quoted, err := quote(value)
		if err != nil {
			return "", err
		}
		return quoted[1 : len(quoted)-1], nil
	}
	return value, nil
}

// check reports what the fields have made of the text.
func (t *Template) check(out string) error {
	switch {
	case t.kind == Header && (!isLine(out) || out != strings.Trim(out, " \t")):
		return errors.New("filled in, it has a character that a header cannot have, or a blank at an end")
	case t.kind == URL && hasDots(out):
		return errDots
	}
	return nil
}

var errDots = errors.New(`has a part of the path that is "." or ".."`)

// hasDots reports whether anybody on the way could take a part of the path for "." or "..": some decode first, some
// take a backslash for a slash, and some leave out what comes after a semicolon.
func hasDots(address string) bool {
	path, _, _ := strings.Cut(address, "?")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

func isLine(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f })
}

// percent encodes everything but what RFC 3986 calls unreserved.
func percent(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// quote returns s as a JSON string.
func quote(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errNotUTF8
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
