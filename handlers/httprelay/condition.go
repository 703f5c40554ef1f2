package httprelay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millbridge/millbridge/handlers/fields"
)

// A Condition is what an answer must be like. With both Status and JSON, both count.
type Condition struct {
	// Status is a list of codes, of which one must be the answer's; empty means any.
	Status []int `json:"status,omitempty"`
	// JSON is about one place in the body.
	JSON *Check `json:"json,omitempty"`
}

// A Check is about one place in a JSON document. It has exactly one of Equals, In and Exists.
type Check struct {
	// Path has the names of fields, and numbers for the entries of lists from 0 on, with dots: "errors.0.code".
	Path string `json:"path"`
	// Equals is the value that must be there. In what a look-up finds, a text may have fields of the message in it.
	Equals json.RawMessage `json:"equals,omitempty"`
	// In are values of which one must be there.
	In []json.RawMessage `json:"in,omitempty"`
	// Exists says whether there must be a value that is not null.
	Exists *bool `json:"exists,omitempty"`
}

func (c Condition) isZero() bool { return len(c.Status) == 0 && c.JSON == nil }

func (c Condition) faults() []error {
	var errs []error
	if c.isZero() {
		errs = append(errs, errors.New(": has neither status nor json"))
	}
	for _, code := range c.Status {
		if code < 200 || code > 599 {
			errs = append(errs, fmt.Errorf(".status: %d is no code of an answer", code))
		}
	}
	if c.JSON != nil {
		if err := c.JSON.fault(); err != nil {
			errs = append(errs, fmt.Errorf(".json: %w", err))
		}
	}
	return errs
}

func (c Check) fault() error {
	given := 0
	for _, there := range []bool{c.Equals != nil, len(c.In) > 0, c.Exists != nil} {
		if there {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("wants exactly one of equals, in and exists")
	case checkPath(c.Path) != nil:
		return fmt.Errorf("path: %w", checkPath(c.Path))
	}
	for _, want := range append(slices.Clone(c.In), c.Equals) {
		if text := strings.TrimSpace(string(want)); strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
			return errors.New("only texts, numbers, true, false and null can be compared")
		}
	}
	return nil
}

// checkPath accepts ".", which is the whole document.
func checkPath(path string) error {
	if path == "." {
		return nil
	}
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			return errors.New("want names with dots between them, such as errors.0.code")
		}
	}
	return nil
}

// holds reports whether the answer is as the condition says. d is nil if the body is not JSON.
func (c Condition) holds(status int, d *document) bool {
	if len(c.Status) > 0 && !slices.Contains(c.Status, status) {
		return false
	}
	return c.JSON == nil || d != nil && c.JSON.holds(d)
}

func (c Check) holds(d *document) bool {
	got, found := d.at(c.Path)
	switch {
	case c.Exists != nil:
		return (found && got != nil) == *c.Exists
	case !found:
		return false
	case c.Equals != nil:
		return same(got, c.Equals)
	}
	return slices.ContainsFunc(c.In, func(want json.RawMessage) bool { return same(got, want) })
}

// bind returns the check with the message's fields in the text that it compares with.
func (c Check) bind(m *fields.Message) (Check, error) {
	t, err := c.template()
	if t == nil || err != nil {
		return c, err
	}
	text, err := t.Render(m)
	if err != nil {
		return c, err
	}
	c.Equals, err = json.Marshal(text)
	return c, err
}

// template returns nil if there are no fields in the check.
func (c Check) template() (*fields.Template, error) {
	var text string
	if c.Equals == nil || json.Unmarshal(c.Equals, &text) != nil || !strings.Contains(text, "{{") {
		return nil, nil
	}
	t, err := fields.Parse(text, fields.Text)
	if err != nil {
		return nil, fmt.Errorf("equals: %w", err)
	}
	return t, nil
}

// document is a body in JSON.
type document struct{ root any }

// parse returns nil if the body is not one JSON value.
func parse(body []byte) *document {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	d := new(document)
	if dec.Decode(&d.root) != nil {
		return nil
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return d
}

// at returns what is at a path.
func (d *document) at(path string) (value any, found bool) {
	value = d.root
	if path == "." {
		return value, true
	}
	for name := range strings.SplitSeq(path, ".") {
		switch in := value.(type) {
		case map[string]any:
			if value, found = in[name]; !found {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) || strconv.Itoa(i) != name {
				return nil, false
			}
			value = in[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// same compares a value with one of the configuration. Numbers are the same if they are equal, however they are written; a
// text is the same as a number that is written like it, because APIs do not agree on what an id is.
func same(got any, want json.RawMessage) bool {
	w := parse(want)
	if w == nil {
		return false
	}
	number, ok := got.(json.Number)
	if !ok {
		return got == w.root
	}
	switch other := w.root.(type) {
	case string:
		return string(number) == other
	case json.Number:
		a, errA := number.Float64()
		b, errB := other.Float64()
		return number == other || len(number) < 16 && len(other) < 16 && errA == nil && errB == nil && a == b
	}
	return false
}
