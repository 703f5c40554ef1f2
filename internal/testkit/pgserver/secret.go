//go:build unix

package pgserver

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// secretOf is what a server keeps of a password, which it takes in its place. It has one round of hashing instead of
// thousands: tests connect all the time, and the race detector would make each connection pay for them with more than
// its queries cost.
func secretOf(password string) (string, error) {
	const rounds = 1
	salt := make([]byte, 16)
	rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, text(salt), text(stored[:]), text(keyed(salted, "Server Key"))), nil
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text)) // never fails
	return mac.Sum(nil)
}
