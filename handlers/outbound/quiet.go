package outbound

import (
	"io"
	"net/http"
	"strings"
)

// transport is a pool whose errors do not repeat what a server has sent. Errors of net/http do, and what a server sends may
// be the request's own token: errors end up in logs and dead letters.
type transport struct{ *http.Transport }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err != nil {
		return nil, quiet(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols { // its body is the connection, which can be written to
		res.Body = quietBody{res.Body}
	}
	return res, nil
}

type quietBody struct{ io.ReadCloser }

func (b quietBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, quiet(err)
}

// quiet cuts an error's text off where it begins to quote.
func quiet(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // readers return it as it is
		return err
	}
	text, _, quotes := strings.Cut(err.Error(), `"`)
	if !quotes {
		return err
	}
	return &quietError{strings.TrimRight(text, ": ="), err}
}

type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }

func (e *quietError) Unwrap() error { return e.err }
