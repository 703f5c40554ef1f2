package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Keys as Standard Webhooks 1.0 writes them, in the section "Signature scheme".
const (
	symmetricPrefix = "whsec_"
	secretPrefix    = "whsk_"
	publicPrefix    = "whpk_"

	minSymmetric = 24
	maxSymmetric = 64

	symmetricVersion  = "v1,"
	asymmetricVersion = "v1a,"
)

// A signer returns the entry of the signature header for some content.
type signer func(content []byte) string

// A verifier reports whether an entry of the signature header is for some content.
type verifier func(content []byte, entry string) bool

// parseSigner reads a key that signs. Its errors do not repeat it.
func parseSigner(text string) (signer, error) {
	switch {
	case strings.HasPrefix(text, symmetricPrefix):
		key, err := parseSymmetric(text)
		if err != nil {
			return nil, err
		}
		return symmetric(key), nil
	case strings.HasPrefix(text, secretPrefix):
		key, err := parseSecretKey(text)
		if err != nil {
			return nil, err
		}
		return func(content []byte) string { return asymmetricVersion + encode(ed25519.Sign(key, content)) }, nil
	case strings.HasPrefix(text, publicPrefix):
		return nil, fmt.Errorf("is a public key, with which nobody can sign: the secret key begins with %s", secretPrefix)
	}
	return nil, fmt.Errorf("must begin with %s or %s", symmetricPrefix, secretPrefix)
}

// parseVerifier reads a key that verifies: a shared secret, a public key, or a secret key, which has the public one in it.
func parseVerifier(text string) (verifier, error) {
	var public ed25519.PublicKey
	switch {
	case strings.HasPrefix(text, symmetricPrefix):
		key, err := parseSymmetric(text)
		if err != nil {
			return nil, err
		}
		sign := symmetric(key)
		return func(content []byte, entry string) bool {
			return strings.HasPrefix(entry, symmetricVersion) && hmac.Equal([]byte(entry), []byte(sign(content)))
		}, nil
	case strings.HasPrefix(text, publicPrefix):
		key, err := decode(text[len(publicPrefix):])
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("must be %s and the base64 of %d bytes", publicPrefix, ed25519.PublicKeySize)
		}
		public = key
	case strings.HasPrefix(text, secretPrefix):
		key, err := parseSecretKey(text)
		if err != nil {
			return nil, err
		}
		public, _ = key.Public().(ed25519.PublicKey)
	default:
		return nil, fmt.Errorf("must begin with %s or %s", symmetricPrefix, publicPrefix)
	}
	return func(content []byte, entry string) bool {
		text, ok := strings.CutPrefix(entry, asymmetricVersion)
		if !ok {
			return false
		}
		signature, err := decode(text)
		return err == nil && ed25519.Verify(public, content, signature)
	}, nil
}

func symmetric(key []byte) signer {
	return func(content []byte) string {
		mac := hmac.New(sha256.New, key)
		mac.Write(content)
		return symmetricVersion + encode(mac.Sum(nil))
	}
}

func parseSymmetric(text string) ([]byte, error) {
	key, err := decode(text[len(symmetricPrefix):])
	if err != nil {
		return nil, fmt.Errorf("must be %s and base64", symmetricPrefix)
	}
	if len(key) < minSymmetric || len(key) > maxSymmetric {
		return nil, fmt.Errorf("must have %d to %d bytes, not %d", minSymmetric, maxSymmetric, len(key))
	}
	return key, nil
}

// parseSecretKey reads a secret key of ed25519: the 32 bytes of RFC 8032, alone or with the public key after them, as most
// libraries keep it.
func parseSecretKey(text string) (ed25519.PrivateKey, error) {
	key, err := decode(text[len(secretPrefix):])
	if err != nil || len(key) != ed25519.SeedSize && len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("must be %s and the base64 of %d or %d bytes", secretPrefix, ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	whole := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
	if len(key) == ed25519.PrivateKeySize && !hmac.Equal(key, whole) {
		return nil, errors.New("has a public key in it that is not its own") // signing with it would give the secret away
	}
	return whole, nil
}

// PublicKey returns the key that receivers verify with ("whpk_...") of one that signs ("whsk_..."). The error does not
// repeat the key.
func PublicKey(secret string) (string, error) {
	if !strings.HasPrefix(secret, secretPrefix) {
		return "", fmt.Errorf("a secret key must begin with %s", secretPrefix)
	}
	key, err := parseSecretKey(secret)
	if err != nil {
		return "", fmt.Errorf("the secret key %w", err)
	}
	return publicPrefix + encode(key[ed25519.SeedSize:]), nil
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") { // which the decoder skips
		return nil, errors.New("has a line break")
	}
	return base64.StdEncoding.DecodeString(s)
}
