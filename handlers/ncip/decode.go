package ncip

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Limits of an answer, besides its size.
const (
	maxDepth = 40
	maxNodes = 20_000
)

// node is an element of an answer: of NCIP's namespace, or of none, because some responders leave it away. Others are
// skipped with all that is in them. All its methods can be called on nil.
type node struct {
	name     string
	text     []byte // before the first child
	children []*node
}

var bom = []byte("\xef\xbb\xbf")

// decode reads an answer. It takes UTF-8 only, and no document type: what a document type is good for, entities and
// files from elsewhere, is what an answer must not have. Its errors quote nothing. They are permanent, but for that of an
// answer in which no NCIPMessage begins: a proxy that shows a page of its own will stop to do so.
func decode(body []byte) (*node, error) {
	root, err := parse(body)
	switch {
	case err == nil:
		return root, nil
	case errors.As(err, new(strangeError)):
		return nil, schema.WithKind(schema.Temporary, fmt.Errorf("the answer is not NCIP: %w", err))
	}
	return nil, handlers.Permanent(fmt.Errorf("the answer is not NCIP: %w", err))
}

// strangeError is of an answer that somebody else has given.
type strangeError string

func (e strangeError) Error() string { return string(e) }

func parse(body []byte) (*node, error) {
	dec := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, bom)))
	encoded := false
	dec.CharsetReader = func(string, io.Reader) (io.Reader, error) {
		encoded = true
		return nil, errors.New("it is not in UTF-8")
	}
	var root *node
	var open []*node
	skip, count := 0, 0
	for {
		token, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			if root == nil {
				return nil, strangeError("there is no element")
			}
			return root, nil
		case err != nil && root == nil && !encoded:
			return nil, strangeError(fmt.Sprintf("no XML at byte %d", dec.InputOffset()))
		case err != nil:
			return nil, fmt.Errorf("no XML at byte %d", dec.InputOffset())
		}
		switch t := token.(type) {
		case xml.Directive:
			if len(t) >= 12 && strings.EqualFold(string(t[:12]), "DOCTYPE html") {
				return nil, strangeError("it is HTML")
			}
			return nil, errors.New("it has a document type")
		case xml.StartElement:
			if count++; count > maxNodes {
				return nil, fmt.Errorf("it has more than %d elements", maxNodes)
			}
			if len(open)+skip >= maxDepth {
				return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			if len(open) == 0 && root != nil {
				return nil, errors.New("it has two roots")
			}
			if skip > 0 || len(open) > 0 && t.Name.Space != Namespace && t.Name.Space != "" {
				skip++
				continue
			}
			n := &node{name: t.Name.Local}
			if len(open) == 0 {
				if n.name != "NCIPMessage" {
					return nil, strangeError("its root is no NCIPMessage")
				}
				if t.Name.Space != Namespace && t.Name.Space != "" {
					return nil, errors.New("its root is no NCIPMessage of version 2")
				}
				root = n
			} else {
				in := open[len(open)-1]
				in.children = append(in.children, n)
			}
			open = append(open, n)
		case xml.EndElement:
			if skip > 0 {
				skip--
				continue
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if skip == 0 && len(open) > 0 {
				in := open[len(open)-1]
				if len(in.children) == 0 {
					in.text = append(in.text, t...)
				}
			}
		}
	}
}

// child returns the first child of a name.
func (n *node) child(name string) *node {
	if n == nil {
		return nil
	}
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// all returns the children of a name.
func (n *node) all(name string) []*node {
	var list []*node
	if n != nil {
		for _, c := range n.children {
			if c.name == name {
				list = append(list, c)
			}
		}
	}
	return list
}

// at goes down a path of first children.
func (n *node) at(path ...string) *node {
	for _, name := range path {
		n = n.child(name)
	}
	return n
}

// value returns the text at a path, without blanks around it. A value that stands in an element Value, as in NCIP 1, is
// found as well.
func (n *node) value(path ...string) string {
	n = n.at(path...)
	if n == nil {
		return ""
	}
	if v := n.child("Value"); v != nil {
		n = v
	}
	return strings.TrimSpace(string(n.text))
}

func (n *node) values(name string) []string {
	var list []string
	for _, c := range n.all(name) {
		if v := c.value(); v != "" {
			list = append(list, v)
		}
	}
	return list
}

func (n *node) has(name string) bool { return n.child(name) != nil }
