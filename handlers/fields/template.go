package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// Kind is what a text with holes is; it decides how fields are written into it.
type Kind uint8

const (
	Text   Kind = iota // plain text
	Header             // the value of an HTTP header
	URL                // an absolute URL, or a path with or without a query
	JSON               // a JSON document
)

// Limits of a text and of what becomes of it.
const (
	MaxTemplate = 64 << 10
	MaxLine     = 8 << 10 // of a [Header] or [URL]
	MaxText     = 4 << 20 // of a [Text] or [JSON]
)

// A Template is a text with holes. It is safe for concurrent use.
type Template struct {
	kind  Kind
	parts []part
}

// part is literal text and, after it, a hole; the last part of a template has none.
type part struct {
	text  string
	path  []string // of the hole; nil if there is none
	place place
}

// place is where a hole is.
type place uint8

const (
	inText   place = iota
	inPath         // of a URL
	inQuery        // of a URL
	inString       // of JSON
	isValue        // of JSON
)

// Parse reads a text with holes, and reports everything that is wrong with it.
func Parse(text string, kind Kind) (*Template, error) {
	if len(text) > MaxTemplate {
		return nil, fmt.Errorf("is longer than %d bytes", MaxTemplate)
	}
	t := &Template{kind: kind}
	var errs []error
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{{")
		if !found {
			t.parts = append(t.parts, part{text: rest})
			break
		}
		position := len(text) - len(rest) + len(before) + 1
		hole, next, closed := strings.Cut(after, "}}")
		if !closed {
			errs = append(errs, fmt.Errorf("position %d: {{ without }}", position))
			break
		}
		path, err := parsePath(hole)
		if err != nil {
			errs = append(errs, fmt.Errorf("position %d: %w", position, err))
		}
		t.parts = append(t.parts, part{text: before, path: path})
		rest = next
	}
	if len(errs) == 0 {
		errs = t.findPlaces()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

func parsePath(hole string) ([]string, error) {
	names, ok := strings.CutPrefix(strings.TrimSpace(hole), ".")
	path := strings.Split(names, ".")
	for _, name := range path {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) }) {
			ok = false
		}
	}
	if !ok {
		return nil, errors.New("want a field such as {{.id}} or {{.payload.customer.id}}")
	}
	switch root := path[0]; {
	case root == "payload":
	case root == "metadata" && len(path) == 2:
	case root == "metadata":
		return nil, errors.New("want an entry of the metadata such as {{.metadata.colour}}")
	case roots[root] == nil:
		return nil, fmt.Errorf("there is no field %q; there are %s", schema.OneLine(root), rootNames())
	case len(path) > 1:
		return nil, fmt.Errorf("the field %q is a text and has no fields of its own", root)
	}
	return path, nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '@' || r == '$'
}

// findPlaces says of each hole where it is, and reports what the text cannot be.
func (t *Template) findPlaces() []error {
	switch t.kind {
	case Header:
		for _, p := range t.parts {
			if !isLine(p.text) {
				return []error{errors.New("has a character that a header cannot have")}
			}
		}
	case URL:
		return t.findPlacesInURL()
	case JSON:
		return t.findPlacesInJSON()
	}
	return nil
}

func (t *Template) findPlacesInURL() []error {
	var whole strings.Builder // the text with an "x" in each hole
	for i := range t.parts {
		p := &t.parts[i]
		whole.WriteString(p.text)
		if p.path == nil {
			break
		}
		p.place = inPath
		if strings.Contains(whole.String(), "?") {
			p.place = inQuery
		}
		whole.WriteByte('x')
	}
	u, err := url.Parse(whole.String())
	switch {
	case err != nil || u.Opaque != "" || u.Scheme != "" && u.Host == "":
		return []error{errors.New("is neither an absolute URL nor a path")}
	case u.User != nil || strings.Contains(whole.String(), "#"):
		return []error{errors.New("has user information or a fragment")}
	case hasDots(whole.String()):
		return []error{errDots}
	case !t.IsStatic() && u.RawPath != "" && u.EscapedPath() != u.RawPath:
		// Whoever sends it would escape all of the path anew, and a slash that a field brings along would divide it.
		return []error{errors.New("has a character that must be escaped in a path: write %20 for a space")}
	case u.Host != "" && !t.IsStatic():
		if _, rest, ok := strings.Cut(t.parts[0].text, "//"); !ok || !strings.ContainsAny(rest, "/?") {
			return []error{errors.New("no field may decide which host is called")}
		}
	}
	return nil
}

func (t *Template) findPlacesInJSON() []error {
	var whole strings.Builder // the text with something in each hole that changes nothing
	quoted, escaped := false, false
	for i := range t.parts {
		p := &t.parts[i]
		for _, c := range []byte(p.text) {
			switch {
			case escaped:
				escaped = false
			case quoted && c == '\\':
				escaped = true
			case c == '"':
				quoted = !quoted
			}
		}
		whole.WriteString(p.text)
		switch {
		case p.path == nil:
		case quoted:
			p.place = inString
			whole.WriteString("x") // no escape goes on with an x
		default:
			p.place = isValue
			whole.WriteString("null") // no number and no other word goes on with it
		}
	}
	if !json.Valid([]byte(whole.String())) {
		return []error{errors.New("is not JSON")}
	}
	return nil
}
