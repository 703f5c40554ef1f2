package schema

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// UUID is the 16 bytes of a universally unique identifier.
type UUID [16]byte

// String returns the canonical lower-case text form.
func (u UUID) String() string {
	var b [36]byte
	return string(u.append(b[:0]))
}

// append appends the text form to b.
func (u UUID) append(b []byte) []byte {
	b = hex.AppendEncode(b, u[0:4])
	b = hex.AppendEncode(append(b, '-'), u[4:6])
	b = hex.AppendEncode(append(b, '-'), u[6:8])
	b = hex.AppendEncode(append(b, '-'), u[8:10])
	return hex.AppendEncode(append(b, '-'), u[10:16])
}

// ParseUUID reads the canonical text form, in either case.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, fmt.Errorf("%q is not a UUID", OneLine(s))
	}
	digits := make([]byte, 0, 32)
	for _, part := range [...]string{s[0:8], s[9:13], s[14:18], s[19:23], s[24:36]} {
		digits = append(digits, part...)
	}
	if _, err := hex.Decode(u[:], digits); err != nil {
		return UUID{}, fmt.Errorf("%q is not a UUID", OneLine(s))
	}
	return u, nil
}

// NewUUID returns a UUID of version 7 (RFC 9562): 48 bits of t in milliseconds, the rest random, so that ids made
// later sort later to the millisecond.
func NewUUID(t time.Time) UUID {
	var u UUID
	rand.Read(u[:]) // never fails: it crashes the program when there is no randomness
	ms := t.UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u
}

// NewID returns a new message id: a UUID of version 7 as text.
func NewID() string { return NewUUID(time.Now()).String() }

// RowID returns the UUID that names the outbox row of the message with this id: the id itself when it is a UUID in
// lower case, else one of version 8 derived from it, so that ids that differ in case stay two. Ids of other shapes come
// from callers who choose their own.
func RowID(id string) UUID {
	if u, err := ParseUUID(id); err == nil && !strings.ContainsFunc(id, func(r rune) bool { return r >= 'A' && r <= 'F' }) {
		return u
	}
	sum := sha256.Sum256([]byte(id))
	u := UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// UsableID returns id, or the UUID of [RowID] as text if it is one of another publisher that cannot be part of a subject.
func UsableID(id string) string {
	if isID(id) {
		return id
	}
	return RowID(id).String()
}

// hashFields hashes a list of strings so that no two different lists have the same input: each is preceded by its length.
func hashFields(fields ...string) [32]byte {
	var few [512]byte
	b := few[:0]
	for _, f := range fields {
		b = appendField(b, f)
	}
	return sha256.Sum256(b)
}

func appendField[T string | []byte](b []byte, f T) []byte {
	n := len(f)
	b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(b, f...)
}
