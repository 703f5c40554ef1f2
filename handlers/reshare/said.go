package reshare

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/schema"
)

// maxSaid is how much of what the other side says about a failure goes into an error.
const maxSaid = 300

// codeHostLMS is mod-rs's code for an action that failed because the library's own system did not do its part.
const codeHostLMS = -3

// said is what an answer that is no success says about itself.
type said struct {
	text string
	code int
}

// explain reads the body of an answer: plain text of the gateway, or one of the forms of JSON that FOLIO's modules use.
// What is neither, a page of a proxy for example, says nothing.
func explain(contentType string, body []byte) said {
	kind, _, _ := mime.ParseMediaType(contentType)
	if kind == "text/plain" {
		return said{text: string(body)}
	}
	type fault struct {
		Message text `json:"message"`
	}
	var form struct {
		fault
		Code     int     `json:"code"`
		Errors   []fault `json:"errors"`
		Embedded struct {
			Errors []fault `json:"errors"`
		} `json:"_embedded"`
	}
	if json.Unmarshal(body, &form) != nil {
		return said{}
	}
	var parts []string
	for _, f := range append(append([]fault{form.fault}, form.Errors...), form.Embedded.Errors...) {
		if f.Message != "" {
			parts = append(parts, string(f.Message))
		}
	}
	return said{text: strings.Join(parts, "; "), code: form.Code}
}

// mask takes secrets out, should the other side repeat them.
func (s *said) mask(secrets ...string) { s.text = configgroup.Mask(s.text, secrets...) }

// judge adds what was said to the error of an answer, and its kind where that is not the status code's.
func (s said) judge(status int, err error) error {
	if line := cut(schema.OneLine(s.text)); line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	if s.isPassing(status) {
		err = schema.WithKind(schema.Temporary, err)
	}
	return err
}

// passing are beginnings of what is said about states that end by themselves, although the code says otherwise.
var passing = map[int][]string{
	http.StatusNotFound: {"No suitable module found"},
	http.StatusBadRequest: {
		"Unable to retrieve permissions for user",
		"Unable to perform action as we are waiting for existing network activity",
		"System error occurred while trying to process request",
	},
}

func (s said) isPassing(status int) bool {
	for _, begin := range passing[status] {
		if strings.HasPrefix(s.text, begin) {
			return true
		}
	}
	return status == http.StatusBadRequest && s.code == codeHostLMS
}

func cut(line string) string {
	if utf8.RuneCountInString(line) > maxSaid {
		return string([]rune(line)[:maxSaid]) + "…"
	}
	return line
}
