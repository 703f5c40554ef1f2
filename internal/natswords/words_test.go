package natswords_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/natswords"
)

type refused int

func (refused) Error() string     { return "maximum bytes exceeded" }
func (r refused) ServerCode() int { return int(r) }

func TestExplain(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"the stream is missing: ":        jetstream.ErrStreamNotFound,
		"the consumer is missing: ":      jetstream.ErrConsumerNotFound,
		"the stream is full: ":           refused(10077),
		"JetStream has no leader: ":      &jetstream.APIError{Code: 503, ErrorCode: 10008},
		"NATS cannot be reached: ":       nats.ErrReconnectBufExceeded,
		"no answer from NATS":            context.DeadlineExceeded,
		"nobody answers":                 nats.ErrNoResponders,
		"the server has no room: ":       refused(10047),
		"NATS cannot be reached: read: ": fmt.Errorf("read: %w", nats.ErrDisconnected),
	} {
		got := natswords.Explain(fmt.Errorf("ask: %w", err))
		if want = strings.Replace(want, "read: ", "ask: read: ", 1); !strings.HasPrefix(got.Error(), want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		if !errors.Is(got, err) || natswords.Explain(got) != got || strings.Contains(got.Error(), "outbound buffer") {
			t.Errorf("%v: %q", err, got)
		}
	}
	other := errors.New("other")
	if natswords.Explain(other) != other || natswords.Explain(nil) != nil {
		t.Error("other errors are changed")
	}
}
