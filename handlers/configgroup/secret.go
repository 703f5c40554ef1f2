package configgroup

import (
	"fmt"
	"io"
	"log/slog"
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

// LogValue masks the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
