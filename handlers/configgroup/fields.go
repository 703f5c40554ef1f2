package configgroup

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/internal/span"
	"github.com/millbridge/millbridge/internal/spelling"
	"github.com/millbridge/millbridge/schema"
)

// fileSuffix makes the name of the variable that names a secret's file.
const fileSuffix = "_FILE"

// field is one setting of a struct.
type field struct {
	name     string // of the variable, without the prefix
	key      string // in a file, as "tls.ca_file"
	index    []int
	kind     reflect.Type
	required bool
	def      string
	doc      string
}

var (
	secretType   = reflect.TypeFor[Secret]()
	secretsType  = reflect.TypeFor[[]Secret]()
	urlType      = reflect.TypeFor[*url.URL]()
	durationType = reflect.TypeFor[time.Duration]()
	jsonType     = reflect.TypeFor[json.Unmarshaler]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// secret reports whether a file may hold the value.
func (f field) secret() bool { return f.kind == secretType || f.kind == secretsType }

// list reports whether the field takes several values, separated by commas.
func (f field) list() bool { return isList(f.kind) }

// block reports whether the field is read from JSON.
func (f field) block() bool { return isBlock(f.kind) }

// isJSON reports whether a block can be read: functions, channels and interfaces cannot.
func isJSON(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textType) || reflect.PointerTo(t).Implements(jsonType) {
		return true
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Pointer:
		return isJSON(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" && !isJSON(f.Type) {
				return false
			}
		}
		return true
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return false
	}
	return true
}

func isText(t reflect.Type) bool {
	return t == secretType || t == urlType || reflect.PointerTo(t).Implements(textType)
}

func isList(t reflect.Type) bool {
	return t == secretsType || t.Kind() == reflect.Slice && !isText(t) && t.Elem().Kind() == reflect.String
}

func isBlock(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return !isText(t)
	case reflect.Slice:
		return !isText(t) && !isList(t)
	}
	return false
}

// names returns the variables with the prefix that set the field.
func (f field) names(prefix string) []string {
	if f.secret() {
		return []string{prefix + f.name, prefix + f.name + fileSuffix}
	}
	return []string{prefix + f.name}
}

// fieldsOf returns the settings of a struct, or everything that is wrong with its declaration.
func fieldsOf(t reflect.Type) ([]field, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v is no struct", t)
	}
	var fields []field
	var errs []error
	taken := map[string]string{}
	for _, sf := range reflect.VisibleFields(t) {
		name, tagged := sf.Tag.Lookup("env")
		if sf.Anonymous && sf.Type.Kind() == reflect.Pointer && sf.Type.Elem().Kind() == reflect.Struct {
			errs = append(errs, fmt.Errorf("field %s: embed the struct, not a pointer to it", sf.Name))
			return nil, errors.Join(errs...) // its fields cannot be reached
		}
		embedded := sf.Anonymous && sf.Type.Kind() == reflect.Struct && sf.Type != secretType
		if name == "-" || !sf.IsExported() || embedded {
			continue
		}
		key := sf.Tag.Get("key")
		if (!tagged || name == "") && key != "" {
			name = spelling.Capitals(key)
		} else if !tagged || name == "" {
			name = spelling.Variable(sf.Name)
		}
		if key == "" {
			key = strings.ToLower(name)
		}
		f := field{name, key, sf.Index, sf.Type, sf.Tag.Get("required") == "true", sf.Tag.Get("default"), sf.Tag.Get("doc")}
		fault := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("field %s: %s", sf.Name, fmt.Sprintf(format, args...)))
		}
		if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			fault("%q is no name of a variable: want A-Z, 0-9 and _", name)
		}
		if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" {
			fault("%q is no key: want a-z, 0-9, _ and dots", key)
		}
		if r := sf.Tag.Get("required"); r != "" && r != "true" && r != "false" {
			fault("required is %q, must be true or false", r)
		}
		if f.required && f.def != "" {
			fault("is required and has a default")
		}
		if f.secret() && f.def != "" {
			fault("a secret has no default")
		} else if f.block() {
			if !isJSON(f.kind) {
				fault("%v %v", f.kind, errType)
			} else if err := parse(reflect.New(f.kind).Elem(), f.def); err != nil && f.def != "" {
				fault("default: %v", err)
			}
		} else if err := parse(reflect.New(f.kind).Elem(), f.def); errors.Is(err, errType) {
			fault("%v", err)
		} else if err != nil && f.def != "" {
			fault("default: %v", err)
		}
		for _, n := range f.names("") {
			if other := taken[n]; other != "" {
				fault("%s is read by field %s already", n, other)
			}
			taken[n] = sf.Name
		}
		fields = append(fields, f)
	}
	return fields, errors.Join(errs...)
}

var errType = errors.New("cannot be read from a variable")

// parse sets v from text. Its errors quote no URL, which may have a token in it; secrets never fail.
func parse(v reflect.Value, text string) error {
	quoted := strconv.Quote(schema.OneLine(text))
	switch {
	case v.Type() == secretType:
		v.Set(reflect.ValueOf(NewSecret(text)))
		return nil
	case v.Type() == urlType:
		u, err := parseURL(text)
		v.Set(reflect.ValueOf(u))
		return err
	case v.Type() == durationType:
		d, err := span.Parse(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(d))
		return nil
	case v.Type() == secretsType:
		v.Set(reflect.ValueOf(secrets(items(text))))
		return nil
	case reflect.PointerTo(v.Type()).Implements(textType):
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	case isBlock(v.Type()):
		return parseJSON(v, []byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%s is neither true nor false", quoted)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s is not a whole number, or one too large", quoted)
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s is not a whole number from 0 on, or one too large", quoted)
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("%s is not a number", quoted)
		}
		v.SetFloat(n)
	case reflect.Slice:
		v.Set(texts(v.Type(), items(text)))
	default:
		return fmt.Errorf("%v %w", v.Type(), errType)
	}
	return nil
}

// items takes a list apart at its commas.
func items(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func texts(t reflect.Type, items []string) reflect.Value {
	list := reflect.MakeSlice(t, 0, len(items))
	for _, item := range items {
		list = reflect.Append(list, reflect.ValueOf(item).Convert(t.Elem()))
	}
	return list
}

func secrets(items []string) []Secret {
	list := make([]Secret, len(items))
	for i, item := range items {
		list[i] = NewSecret(item)
	}
	return list
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "":
		return nil, errors.New("is not an absolute address such as https://example.org/api")
	case u.User != nil:
		return nil, errors.New("has a user or password, which would be printed; make it a secret of its own")
	}
	return u, nil
}
