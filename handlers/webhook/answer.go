package webhook

import (
	"fmt"
	"net/http"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
)

// verdict turns a complete answer into what Handle returns; see the table in the package's documentation.
func (e *endpoint) verdict(res *http.Response) error {
	err := outbound.Verdict(res, e.now(), e.retryAfterMax)
	if res.StatusCode == http.StatusGone {
		return handlers.Gone(fmt.Errorf("%w; the receiver wants no more messages", err))
	}
	return err
}
