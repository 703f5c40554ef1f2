package outbound

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Limits of [Read].
const (
	MaxBody       = 1 << 20
	RetryAfterMax = time.Hour
)

// Read returns the body of an answer, closes it, and says by the kind of its error what the answer means for a handler:
//
//	2xx                             no error
//	301, 308                        permanent: the URL must be changed
//	408, 425, 429 and other 3xx     temporary
//	5xx                             temporary
//	other codes                     permanent
//	a body that breaks off          temporary
//	a body longer than [MaxBody]    permanent
//
// The wait that a temporary answer asks for with Retry-After becomes that of the error, up to [RetryAfterMax]. The
// error of a code is a [*StatusError]; the body is returned with it. Reading to the end is what lets the connection be
// used again.
func Read(res *http.Response) (body []byte, err error) {
	defer res.Body.Close()
	answer := Verdict(res, time.Now(), RetryAfterMax)
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is the bare connection, which no deadline ends
		return nil, answer
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, MaxBody+1))
	switch {
	case answer != nil:
		return body[:min(len(body), MaxBody)], answer
	case err != nil:
		return nil, fmt.Errorf("answered %d, but the answer broke off: %w", res.StatusCode, err)
	case len(body) > MaxBody:
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("answered %d with more than %d bytes", res.StatusCode, MaxBody))
	}
	return body, nil
}

// Verdict judges the code of an answer as [Read] does, without its body. A wait that the answer asks for counts from
// now and up to maxWait.
func Verdict(res *http.Response, now time.Time, maxWait time.Duration) error {
	if res.StatusCode/100 == 2 {
		return nil
	}
	err := &StatusError{Status: res.StatusCode}
	if !isTemporary(res.StatusCode) {
		return schema.WithKind(schema.Permanent, err)
	}
	if wait, ok := parseRetryAfter(res.Header.Get("Retry-After"), now); ok {
		return schema.RetryAfter(err, min(wait, maxWait))
	}
	return schema.WithKind(schema.Temporary, err)
}

// A StatusError is an answer that is no success.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	hint := ""
	if e.Status/100 == 3 {
		hint = "; redirects are not followed"
	}
	return strings.TrimSpace(fmt.Sprintf("answered %d %s", e.Status, http.StatusText(e.Status))) + hint
}

func isTemporary(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return false
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status/100 == 3 || status/100 == 5
}

// parseRetryAfter reads the wait of a Retry-After header: seconds, or a date. ok is false if it asks for no wait or
// says nothing that can be understood.
func parseRetryAfter(v string, now time.Time) (wait time.Duration, ok bool) {
	const longest = math.MaxInt64 / int64(time.Second)
	if v != "" && strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > longest { // more digits than an int64 has
			seconds = longest
		}
		return time.Duration(seconds) * time.Second, seconds > 0
	}
	if date, err := http.ParseTime(v); err == nil {
		wait = date.Sub(now)
		return wait, wait > 0
	}
	return 0, false
}
