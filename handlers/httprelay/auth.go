package httprelay

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// Types of [Auth].
const (
	AuthNone   = "none"
	AuthBasic  = "basic"
	AuthBearer = "bearer"
	AuthAPIKey = "api_key"
	AuthOAuth2 = "oauth2"
)

// Ways in which a client proves who it is to the token endpoint: see RFC 6749, section 2.3.1.
const (
	ClientSecretBasic = "client_secret_basic"
	ClientSecretPost  = "client_secret_post"
)

// Auth says how requests prove who sends them. A secret is a text, or {"file": "/path"}.
type Auth struct {
	// Type is none, basic, bearer, api_key or oauth2; empty means none.
	Type string `json:"type"`

	// basic
	User     string             `json:"user,omitempty"`
	Password configgroup.Secret `json:"password,omitzero"`

	// bearer
	Token configgroup.Secret `json:"token,omitzero"`

	// api_key: Header carries Scheme, if there is one, a blank, and Key.
	Header string             `json:"header,omitempty"`
	Scheme string             `json:"scheme,omitempty"`
	Key    configgroup.Secret `json:"key,omitzero"`

	// oauth2: client credentials, RFC 6749 section 4.4.
	TokenURL     string             `json:"token_url,omitempty"`
	ClientID     string             `json:"client_id,omitempty"`
	ClientSecret configgroup.Secret `json:"client_secret,omitzero"`
	ClientAuth   string             `json:"client_auth,omitempty"` // client_secret_basic or client_secret_post; empty means the first
	Scope        string             `json:"scope,omitempty"`
	Audience     string             `json:"audience,omitempty"`
}

// authFields says which fields belong to which type; those with a '?' may be empty.
var authFields = map[string]string{
	"": "", AuthNone: "", AuthBasic: "user password", AuthBearer: "token", AuthAPIKey: "header key scheme?",
	AuthOAuth2: "token_url client_id client_secret client_auth? scope? audience?",
}

func (a Auth) faults() []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("auth."+format, args...)) }
	wanted, ok := authFields[a.Type]
	if !ok {
		fault("type: %q is none of none, basic, bearer, api_key and oauth2", schema.OneLine(a.Type))
		return errs
	}
	required, allowed := map[string]bool{}, map[string]bool{}
	for name := range strings.FieldsSeq(wanted) {
		plain, optional := strings.CutSuffix(name, "?")
		allowed[plain], required[plain] = true, !optional
	}
	for _, f := range []struct{ name, value string }{
		{"user", a.User},
		{"password", a.Password.Reveal()},
		{"token", a.Token.Reveal()},
		{"header", a.Header},
		{"scheme", a.Scheme},
		{"key", a.Key.Reveal()},
		{"token_url", a.TokenURL},
		{"client_id", a.ClientID},
		{"client_secret", a.ClientSecret.Reveal()},
		{"client_auth", a.ClientAuth},
		{"scope", a.Scope},
		{"audience", a.Audience},
	} {
		switch {
		case f.value == "" && required[f.name]:
			fault("%s: is missing", f.name)
		case f.value != "" && !allowed[f.name]:
			fault("%s: does not belong to type %q", f.name, a.Type)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	switch a.Type {
	case AuthBasic:
		if strings.Contains(a.User, ":") {
			fault("user: has a colon, which ends it") // RFC 7617, section 2
		}
	case AuthBearer:
		if !isToken68(a.Token.Reveal()) {
			fault("token: has a character that a bearer token cannot have")
		}
	case AuthAPIKey:
		if err := checkHeader(a.Header, strings.TrimSpace(a.Scheme+" "+a.Key.Reveal())); err != nil {
			fault("header: %w", err)
		}
	case AuthOAuth2:
		u, err := url.Parse(a.TokenURL)
		if err != nil {
			err = errors.New("is not an http or https address")
		} else {
			err = checkURL(u)
		}
		if err != nil {
			fault("token_url: %w", err)
		}
		if a.ClientAuth != "" && a.ClientAuth != ClientSecretBasic && a.ClientAuth != ClientSecretPost {
			fault("client_auth: %q is neither %s nor %s", schema.OneLine(a.ClientAuth), ClientSecretBasic, ClientSecretPost)
		}
	}
	return errs
}

// header is the header that carries the proof, empty if there is none.
func (a Auth) header() string {
	switch a.Type {
	case AuthBasic, AuthBearer, AuthOAuth2:
		return "Authorization"
	case AuthAPIKey:
		return a.Header
	}
	return ""
}

// fixed returns the header's value, which oauth2 does not have.
func (a Auth) fixed() string {
	switch a.Type {
	case AuthBasic:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.User+":"+a.Password.Reveal()))
	case AuthBearer:
		return "Bearer " + a.Token.Reveal()
	case AuthAPIKey:
		return strings.TrimSpace(a.Scheme + " " + a.Key.Reveal())
	}
	return ""
}

// masked returns the header's value as previews show it.
func (a Auth) masked() string {
	switch a.Type {
	case AuthBasic:
		return "Basic " + mask
	case AuthBearer, AuthOAuth2:
		return "Bearer " + mask
	}
	return strings.TrimSpace(a.Scheme + " " + mask)
}

// secrets returns what must not be in an error.
func (a Auth) secrets() []string {
	return []string{a.Password.Reveal(), a.Token.Reveal(), a.Key.Reveal(), a.ClientSecret.Reveal(), strings.TrimPrefix(a.fixed(), "Basic ")}
}

const mask = "***"

// isToken68 reports whether s can be a bearer token: see RFC 6750, section 2.1.
func isToken68(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
	body := strings.TrimRight(s, "=")
	return body != "" && strings.Trim(body, letters) == ""
}
