package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/span"
	"github.com/millbridge/millbridge/schema"
)

const mask = "***"

// Retry is a retry policy as it is written in a configuration.
type Retry schema.RetryPolicy

// Duration is a time span: as Go writes them, and days ("7d").
type Duration time.Duration

// ParseDuration reads a time span such as "1.5s", "10m", "7d" or "1d12h".
func ParseDuration(s string) (Duration, error) {
	d, err := span.Parse(s)
	return Duration(d), err
}

// String returns the span as it would be written in the file.
func (d Duration) String() string { return span.Format(time.Duration(d)) }

// ParseSize reads a number of bytes such as "65536", "64KiB" or "1MB".
func ParseSize(s string) (int64, error) {
	number, factor := s, int64(1)
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%s is not a size such as 65536, 64KiB or 1MB", quote(s))
	}
	return n * factor, nil
}

// Secret is a text that does not print itself.
type Secret string

// Reveal returns the secret text.
func (s Secret) Reveal() string { return string(s) }

// String returns "***", or nothing if there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// Format masks the secret under every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText masks the secret in JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue masks the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// URL is an address that may hold a secret; it prints itself without it.
type URL string

// Reveal returns the whole address.
func (u URL) Reveal() string { return string(u) }

// String returns the address without what may be secret.
func (u URL) String() string { return MaskURL(string(u)) }

// Format masks the address under every verb.
func (u URL) Format(f fmt.State, _ rune) { fmt.Fprint(f, u.String()) }

// MarshalText masks the address in JSON and YAML.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue masks the address in logs.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// assign parses values into the field.
func assign(field any, values []string) error {
	switch f := field.(type) {
	case configgroup.Setting:
		return f.Set(values)
	case *[]string:
		*f = values
		return nil
	case *[]Secret:
		*f = convert[Secret](values)
		return nil
	case *[]URL:
		*f = convert[URL](values)
		return nil
	}
	if len(values) != 1 {
		return errors.New("wants one value, not a list")
	}
	text := values[0]
	var err error
	switch f := field.(type) {
	case *string:
		*f = text
	case *Secret:
		*f = Secret(text)
	case *URL:
		*f = URL(text)
	case *bool:
		if *f, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s is neither true nor false", quote(text))
		}
	case *int:
		if *f, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%s is not a whole number", quote(text))
		}
	case *float64:
		if *f, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(*f) {
			return fmt.Errorf("%s is not a number", quote(text))
		}
	case *Duration:
		*f, err = ParseDuration(text)
	default:
		return fmt.Errorf("cannot be set (%T)", field)
	}
	return err
}

func convert[T ~string](values []string) []T {
	out := make([]T, len(values))
	for i, v := range values {
		out[i] = T(v)
	}
	return out
}

// clearField takes back the value of a string or list.
func clearField(field any) {
	switch f := field.(type) {
	case configgroup.Setting:
		f.Clear()
	case *string:
		*f = ""
	case *Secret:
		*f = ""
	case *URL:
		*f = ""
	case *[]Secret:
		*f = nil
	}
}

// isEmpty reports whether a string or list has nothing in it.
func isEmpty(field any) bool {
	switch f := field.(type) {
	case configgroup.Setting:
		return f.IsEmpty()
	case *string:
		return *f == ""
	case *Secret:
		return *f == ""
	case *URL:
		return *f == ""
	case *[]Secret:
		return len(*f) == 0
	}
	return false
}

// isList reports whether the field takes several values.
func isList(field any) bool {
	switch f := field.(type) {
	case configgroup.Setting:
		return f.IsList()
	case *[]string, *[]Secret, *[]URL:
		return true
	}
	return false
}

// isBlock reports whether the field holds keys and values of its own.
func isBlock(field any) bool {
	s, ok := field.(configgroup.Setting)
	return ok && s.IsBlock()
}

func quote(s string) string { return strconv.Quote(schema.OneLine(s)) }
