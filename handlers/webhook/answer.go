package webhook

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// verdict turns a complete answer into what Handle returns; see the table in the package's documentation.
func (e *endpoint) verdict(status int, retryAfter string) error {
	if status/100 == 2 {
		return nil
	}
	err := &StatusError{Status: status}
	if !isTemporary(status) {
		return handlers.Permanent(err)
	}
	if wait, ok := parseRetryAfter(retryAfter, e.now()); ok {
		return handlers.RetryAfter(err, min(wait, e.retryAfterMax))
	}
	return schema.WithKind(schema.Temporary, err)
}

// A StatusError is an answer that is no success.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	hint := ""
	switch {
	case e.Status == http.StatusGone:
		hint = "; the receiver wants no more messages"
	case e.Status/100 == 3:
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
