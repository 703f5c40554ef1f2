package configgroup

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/millbridge/millbridge/internal/spelling"
	"github.com/millbridge/millbridge/schema"
)

// A BlockError is what is wrong at one place inside a block.
type BlockError struct {
	Path string // as "renew.done.0.status"; empty for the block as a whole
	Err  error
}

// Error names the place and quotes no value.
func (e *BlockError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return schema.OneLine(e.Path) + ": " + e.Err.Error()
}

// Unwrap returns what is wrong there.
func (e *BlockError) Unwrap() error { return e.Err }

// Faults takes what [Setting.Set] found apart: of a block it may be several things.
func Faults(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what Set has joined
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// parseJSON reads a block. The error joins a [BlockError] for each place where something is wrong.
func parseJSON(v reflect.Value, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return &BlockError{Err: blockError(err)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &BlockError{Err: errors.New("has more than one JSON value")}
	}
	into := reflect.New(v.Type())
	if faults := check(into.Elem(), raw, ""); len(faults) > 0 {
		return errors.Join(faults...)
	}
	if err := json.Unmarshal(raw, into.Interface()); err != nil {
		return &BlockError{Err: blockError(err)}
	}
	v.Set(into.Elem())
	return nil
}

// check reports all that does not fit into v, where a decoder would stop at the first and not say where it is.
func check(v reflect.Value, raw json.RawMessage, path string) []error {
	t := v.Type()
	if readsItself := reflect.PointerTo(t).Implements(jsonType) || reflect.PointerTo(t).Implements(textType); !readsItself && string(raw) != "null" {
		switch t.Kind() {
		case reflect.Pointer:
			return check(reflect.New(t.Elem()).Elem(), raw, path)
		case reflect.Struct, reflect.Map:
			if raw[0] == '{' {
				return checkFields(t, raw, path)
			}
		case reflect.Slice, reflect.Array:
			if raw[0] == '[' {
				return checkItems(t, raw, path)
			}
		}
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		return []error{&BlockError{path, blockError(err)}}
	}
	return nil
}

func checkFields(t reflect.Type, raw json.RawMessage, path string) (faults []error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return []error{&BlockError{path, blockError(err)}}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		below := strings.TrimPrefix(path+"."+name, ".")
		if t.Kind() == reflect.Map {
			faults = append(faults, check(reflect.New(t.Elem()).Elem(), values[name], below)...)
			continue
		}
		known := jsonFields(t)
		if kind, ok := known[strings.ToLower(name)]; ok { // a decoder does not care about case either
			faults = append(faults, check(reflect.New(kind).Elem(), values[name], below)...)
			continue
		}
		names := slices.Sorted(maps.Keys(known))
		hint := "there are " + strings.Join(names, ", ")
		if meant := spelling.Nearest(name, names); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		faults = append(faults, &BlockError{below, errors.New("is not known; " + hint)})
	}
	return faults
}

func checkItems(t reflect.Type, raw json.RawMessage, path string) (faults []error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return []error{&BlockError{path, blockError(err)}}
	}
	for i, item := range items {
		below := strings.TrimPrefix(path+"."+strconv.Itoa(i), ".")
		faults = append(faults, check(reflect.New(t.Elem()).Elem(), item, below)...)
	}
	return faults
}

// jsonFields returns the types of a struct's fields by their names in JSON, in lower case.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	known := map[string]reflect.Type{}
	for _, sf := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case !sf.IsExported() || sf.Tag.Get("json") == "-" || sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
		case name == "":
			known[strings.ToLower(sf.Name)] = sf.Type
		default:
			known[strings.ToLower(name)] = sf.Type
		}
	}
	return known
}

// blockError says what does not fit without quoting it.
func blockError(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		found, _, _ := strings.Cut(wrongType.Value, " ") // a number's digits follow
		text := "wants " + jsonName(wrongType.Type) + ", found " + foundName(found)
		if wrongType.Type.Kind() == reflect.String && (found == "number" || found == "bool") {
			text += "; put it in quotes"
		}
		return errors.New(text)
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("is not JSON")
	}
	return errors.New(schema.OneLine(strings.TrimPrefix(err.Error(), "json: ")))
}

func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "keys and values"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// foundName is what JSON calls a value in our words.
func foundName(json string) string {
	switch json {
	case "array":
		return "a list"
	case "object":
		return "keys and values"
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a number"
}

func blockText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return `"` + mask + `"`
	}
	return string(text)
}

func hostOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	text := u.Scheme + "://" + u.Host
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		text += "/" + mask
	}
	return text
}
