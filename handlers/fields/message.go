package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
)

// A Message is where fields are taken from. It reads each part of the payload once, when it is asked for, and is not
// safe for concurrent use: make one for each run.
type Message struct {
	env     schema.Envelope
	payload node
}

// Of returns a message's fields.
func Of(env schema.Envelope) *Message {
	return &Message{env: env.First(), payload: node{raw: env.Payload}}
}

// roots are the fields that are texts.
var roots = map[string]func(schema.Envelope) string{
	"id":           func(e schema.Envelope) string { return e.ID },
	"key":          schema.Envelope.IdempotencyKey,
	"kind":         func(e schema.Envelope) string { return string(e.Kind) },
	"target":       func(e schema.Envelope) string { return e.Target },
	"name":         func(e schema.Envelope) string { return e.Name },
	"type":         schema.Envelope.Type,
	"tenant":       func(e schema.Envelope) string { return e.Tenant },
	"actor":        func(e schema.Envelope) string { return e.Actor },
	"request_id":   func(e schema.Envelope) string { return e.RequestID },
	"ordering_key": func(e schema.Envelope) string { return e.OrderingKey },
	"source":       func(e schema.Envelope) string { return e.Source },
	"content_type": func(e schema.Envelope) string { return e.ContentType },
	"time": func(e schema.Envelope) string {
		if e.Time.IsZero() {
			return ""
		}
		return e.Time.UTC().Format(time.RFC3339Nano)
	},
}

func rootNames() string {
	return strings.Join(append(slices.Sorted(maps.Keys(roots)), "metadata", "payload"), ", ")
}

var errMissing = errors.New("the message has no such field")

// text returns a field as text.
func (m *Message) text(path []string) (string, error) {
	switch {
	case path[0] == "payload" && len(path) == 1:
		return string(m.env.Payload), nil
	case path[0] == "payload":
		n, err := m.payload.find(path[1:])
		if err != nil {
			return "", err
		}
		return n.text()
	case path[0] == "metadata":
		value, ok := m.env.Metadata[path[1]]
		if !ok {
			return "", errMissing
		}
		return value, nil
	}
	return roots[path[0]](m.env), nil
}

// json returns a field as a JSON value.
func (m *Message) json(path []string) (string, error) {
	if path[0] != "payload" {
		text, err := m.text(path)
		if err != nil {
			return "", err
		}
		return quote(text)
	}
	n, err := m.payload.find(path[1:])
	if err != nil {
		return "", err
	}
	switch {
	case len(path) == 1 && !json.Valid(n.raw):
		return "", errNotJSON
	case !utf8.Valid(n.raw):
		return "", errNotUTF8
	}
	return string(bytes.TrimSpace(n.raw)), nil
}

// node is a JSON value that is taken apart when somebody asks for what is in it.
type node struct {
	raw    json.RawMessage
	object map[string]*node
	list   []*node
	err    error
	read   bool
}

func (n *node) find(path []string) (*node, error) {
	for _, name := range path {
		if n.open(); n.err != nil {
			return nil, n.err
		}
		next := n.object[name]
		if i, err := strconv.Atoi(name); err == nil && n.list != nil && i >= 0 && i < len(n.list) && name == strconv.Itoa(i) {
			next = n.list[i]
		}
		if next == nil {
			return nil, errMissing
		}
		n = next
	}
	return n, nil
}

// open takes an object or a list apart, once.
func (n *node) open() {
	if n.read {
		return
	}
	n.read = true
	switch n.first() {
	case '{':
		var fields map[string]json.RawMessage
		n.err = unmarshal(n.raw, &fields)
		n.object = make(map[string]*node, len(fields))
		for name, raw := range fields {
			n.object[name] = &node{raw: raw}
		}
	case '[':
		var items []json.RawMessage
		n.err = unmarshal(n.raw, &items)
		for _, raw := range items {
			n.list = append(n.list, &node{raw: raw})
		}
	default:
		if !json.Valid(n.raw) {
			n.err = errNotJSON
		}
	}
}

var (
	errNotJSON = errors.New("the payload is not JSON")
	errNotUTF8 = errors.New("is not UTF-8")
)

func unmarshal(raw []byte, into any) error {
	if json.Unmarshal(raw, into) != nil {
		return errNotJSON
	}
	return nil
}

func (n *node) first() byte {
	if text := bytes.TrimLeft(n.raw, " \t\r\n"); len(text) > 0 {
		return text[0]
	}
	return 0
}

func (n *node) text() (string, error) {
	switch n.first() {
	case '"':
		var text string
		if err := json.Unmarshal(n.raw, &text); err != nil {
			return "", errNotJSON
		}
		return text, nil
	case '{', '[', 'n':
		what := map[byte]string{'{': "an object", '[': "a list", 'n': "null"}[n.first()]
		return "", fmt.Errorf("is %s, which has no text", what)
	}
	return string(bytes.TrimSpace(n.raw)), nil // a number, true or false
}
