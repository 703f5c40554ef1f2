package configgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/millbridge/millbridge/internal/span"
	"github.com/millbridge/millbridge/schema"
)

// A Setting is one field of a struct of settings, for those who read them from elsewhere than the environment.
type Setting struct {
	Key      string // as "tls.ca_file"
	Type     string // as [Variable] has it
	Required bool
	Default  string
	Doc      string

	field field
	value reflect.Value
}

// SettingsOf gives a struct of settings its defaults and returns its fields, in their order. The error, for a declaration
// that makes no sense, is permanent.
func SettingsOf(pointer any) ([]Setting, error) {
	v := reflect.ValueOf(pointer)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("%T is no pointer to settings", pointer))
	}
	fields, err := fieldsOf(v.Type().Elem())
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	list := make([]Setting, len(fields))
	for i, f := range fields {
		list[i] = Setting{f.key, f.typeName(), f.required, f.def, f.doc, f, v.Elem().FieldByIndex(f.index)}
		if f.def != "" {
			if err := parse(list[i].value, f.def); err != nil {
				return nil, schema.WithKind(schema.Permanent, fmt.Errorf("%s: %w", f.key, err))
			}
		}
	}
	return list, nil
}

// IsSecret reports whether the setting may stand in a file of its own.
func (s Setting) IsSecret() bool { return s.field.secret() }

// IsList reports whether the setting takes several values.
func (s Setting) IsList() bool { return s.field.list() }

// IsBlock reports whether the setting is read from JSON.
func (s Setting) IsBlock() bool { return s.field.block() }

// IsEmpty reports whether the setting has no value.
func (s Setting) IsEmpty() bool { return s.value.IsZero() }

// Clear takes the setting's value back.
func (s Setting) Clear() { s.value.SetZero() }

// Set gives the setting its values: one, or any number if it is a list. That of a block is JSON.
func (s Setting) Set(values []string) error {
	switch {
	case s.value.Type() == secretsType:
		s.value.Set(reflect.ValueOf(secrets(values)))
		return nil
	case s.IsList():
		s.value.Set(texts(s.value.Type(), values))
		return nil
	case len(values) != 1:
		return errors.New("wants one value, not a list")
	}
	return parse(s.value, values[0])
}

// Value returns the value as it may be shown and encoded: secrets masked, of a URL only scheme and host, because path and
// query often hold a token.
func (s Setting) Value() any {
	v := s.value.Interface()
	switch {
	case s.value.Type() == durationType:
		return span.Format(v.(time.Duration))
	case s.IsList():
		list := make([]string, s.value.Len())
		for i := range list {
			list[i] = fmt.Sprint(s.value.Index(i).Interface())
		}
		return list
	case s.value.Type() == urlType:
		return hostOf(v.(*url.URL))
	case s.IsBlock():
		return json.RawMessage(blockText(v))
	case isText(s.value.Type()):
		return fmt.Sprint(v)
	}
	return v
}

// Reveal returns the texts of all secrets in the setting, for those who have to keep them out of what others print.
func (s Setting) Reveal() []string {
	var found []string
	reveal(s.value, &found)
	return found
}

func reveal(v reflect.Value, found *[]string) {
	if v.Type() == secretType {
		if secret := v.Interface().(Secret); !secret.IsZero() {
			*found = append(*found, secret.Reveal())
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				reveal(v.Field(i), found)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			reveal(v.Index(i), found)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			reveal(v.MapIndex(key), found)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && v.Type() != urlType && strings.HasPrefix(v.Type().PkgPath(), "github.com/millbridge/") {
			reveal(v.Elem(), found)
		}
	}
}
