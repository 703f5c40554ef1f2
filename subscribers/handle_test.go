package subscribers

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Once a message is about to be settled the server hears no more of progress, which would undo the wait of a nak.
func TestProgressIsNotReportedAfterTheOutcome(t *testing.T) {
	t.Parallel()
	h := &handling{m: &nats.Msg{}, alive: time.Now(), settling: true}
	h.inProgress() // it would fail, and has no logger to say so
}
