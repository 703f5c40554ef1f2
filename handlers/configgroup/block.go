package configgroup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// parseJSON reads a block. Its errors name the field and quote no value.
func parseJSON(v reflect.Value, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	into := reflect.New(v.Type())
	if err := dec.Decode(into.Interface()); err != nil {
		return blockError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has more than one JSON value")
	}
	v.Set(into.Elem())
	return nil
}

func blockError(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		found, _, _ := strings.Cut(wrongType.Value, " ") // a number's digits follow
		if wrongType.Field == "" {
			return fmt.Errorf("wants %s, found %s", jsonName(wrongType.Type), found)
		}
		return fmt.Errorf("%s: wants %s, found %s", schema.OneLine(wrongType.Field), jsonName(wrongType.Type), found)
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
