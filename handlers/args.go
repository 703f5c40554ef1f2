package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// An ArgsError reports a payload that does not fit the arguments of its action. It quotes none of the payload's values,
// unless a type of your own does so in its UnmarshalJSON.
type ArgsError struct {
	Target string // empty for events
	Action string
	Path   string // where in the JSON, as "lines[2].price"; empty for the payload as a whole
	Reason string
}

func (e *ArgsError) Error() string {
	where := e.Action
	if e.Target != "" {
		where = e.Target + "/" + e.Action
	}
	if e.Path == "" {
		return fmt.Sprintf("args of %s: %s", where, e.Reason)
	}
	return fmt.Sprintf("args of %s: field %q: %s", where, schema.OneLine(e.Path), e.Reason)
}

func decodeArgs(payload []byte, args any) *ArgsError {
	if len(bytes.TrimSpace(payload)) == 0 {
		payload = []byte("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(args); err != nil {
		return argsError(payload, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &ArgsError{Reason: fmt.Sprintf("there is more after the JSON value, from byte %d", dec.InputOffset())}
	}
	return nil
}

func argsError(payload []byte, err error) *ArgsError {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var badTime *time.ParseError
	switch {
	case errors.As(err, &wrongType):
		found, _, _ := strings.Cut(wrongType.Value, " ") // a number's digits follow
		return &ArgsError{Path: pathAt(payload, wrongType.Offset), Reason: fmt.Sprintf("want %s, found %s", jsonName(wrongType.Type), found)}
	case errors.As(err, &syntax):
		return &ArgsError{Reason: fmt.Sprintf("not JSON at byte %d", syntax.Offset)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &ArgsError{Reason: "the JSON value is cut off"}
	case errors.As(err, &badTime):
		return &ArgsError{Reason: "a time is not as in RFC 3339"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &ArgsError{Path: pathOf(payload, strings.Trim(name, `"`)), Reason: "is not known"}
	}
	if strings.HasPrefix(err.Error(), "json: invalid use of ,string struct tag") {
		return &ArgsError{Reason: "a text does not hold what its field wants"}
	}
	return &ArgsError{Reason: schema.OneLine(err.Error())} // from the type's own UnmarshalJSON
}

// jsonName is what a type is called by those who write the JSON: its own name is of no use to them.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	}
	return t.Kind().String()
}

// maxPath is how many bytes of a path are reported.
const maxPath = 300

// pathAt returns where the value is that ends, or as an array or object begins, at the byte offset.
func pathAt(payload []byte, offset int64) string {
	at := ""
	walk(payload, func(path, _ string, end int64) bool {
		if end > offset {
			return false
		}
		at = path
		return true
	})
	return shortened(at)
}

// pathOf returns where the field called name is, or only the name if there are several.
func pathOf(payload []byte, name string) string {
	at, n := name, 0
	walk(payload, func(path, key string, _ int64) bool {
		if key != name {
			return true
		}
		if n++; n == 1 {
			at = path
		} else {
			at = name
		}
		return n == 1
	})
	return shortened(at)
}

// below returns the path of a step below path. A path that is too long to be reported stays as it is: those of a payload
// that is nested deeply would take its size times its depth.
func below(path, step string) string {
	if len(path) > maxPath {
		return path
	}
	return path + step
}

func shortened(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath], "") + "..."
}

// walk calls visit for each value in JSON, as long as it returns true: with the value's path, at least as far as it is
// reported, the name of its field, if it is one, and the byte where it ends, or as an array or object begins.
func walk(payload []byte, visit func(path, key string, end int64) bool) {
	type level struct {
		path  string
		array bool
		next  int    // arrays: the position of the next value
		key   string // objects: the field whose value is next
		named bool   // objects: key was read
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber() // a number too large for a float64 is no error here
	for {
		token, err := dec.Token()
		if err != nil {
			return
		}
		delim, _ := token.(json.Delim)
		if delim == ']' || delim == '}' {
			stack = stack[:len(stack)-1]
			continue
		}
		path, key := "", ""
		if len(stack) > 0 {
			in := &stack[len(stack)-1]
			switch {
			case in.array:
				path = below(in.path, "["+strconv.Itoa(in.next)+"]")
				in.next++
			case !in.named:
				in.key, in.named = token.(string), true
				continue
			default:
				key, in.named = in.key, false
				if path = key; in.path != "" {
					path = below(in.path, "."+key)
				}
			}
		}
		if !visit(path, key, dec.InputOffset()) {
			return
		}
		if delim != 0 {
			stack = append(stack, level{path: path, array: delim == '['})
		}
	}
}
