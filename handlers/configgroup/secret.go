package configgroup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const mask = "***"

// A Secret is a text that does not print itself, whatever prints it: not as a value, not in a struct, not in JSON or a
// log. Its zero value is empty.
type Secret struct {
	// A pointer, because fmt asks no method about what is in unexported fields: it prints the address.
	text *string
}

// NewSecret returns a secret, for tests and for settings that come from elsewhere.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the secret text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// String returns "***", or nothing if there is no secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return mask
}

// Format masks the secret under every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText masks the secret in JSON and other encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads a secret inside a larger setting: a text, or {"file": "/path"} for one that stands in a file.
func (s *Secret) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*s = NewSecret(text)
		return nil
	}
	var in struct{ File string }
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || in.File == "" {
		return errors.New(`a secret is a text in quotes, or {"file": "/path"}`)
	}
	lines, err := readSecrets(in.File)
	if err != nil {
		return err
	}
	if len(lines) != 1 {
		return fmt.Errorf("%s has %d lines, want 1 with the secret", in.File, len(lines))
	}
	*s = NewSecret(lines[0])
	return nil
}

// LogValue masks the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Mask returns what another system says as one line, with "***" in place of these secrets. Both are made one line before
// they are compared: what that leaves out of a text or changes in it may hide a secret.
func Mask(text string, secrets ...string) string {
	text = oneLine(text)
	lines := make([]string, len(secrets))
	for i, secret := range secrets {
		lines[i] = oneLine(secret)
	}
	slices.SortFunc(lines, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	for _, secret := range lines {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, mask)
		}
	}
	return text
}

// oneLine makes one line of s, with single spaces between its words. It does not cut it, as schema.OneLine does: the rest
// of a secret that is cut would not be found.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return -1
		case r == utf8.RuneError:
			return '?'
		case unicode.IsControl(r):
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
