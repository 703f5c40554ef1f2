package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// A connection that is closed is not made anew: whoever waits for it waits for ever.
func TestIsFinal(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nats.ErrConnectionClosed:     true,
		nats.ErrReconnectBufExceeded: false,
		nats.ErrAuthorization:        false,
		context.DeadlineExceeded:     false,
		errors.New("anything else"):  false,
	} {
		if got := isFinal(fmt.Errorf("open: %w", err)); got != want {
			t.Errorf("%v is final: %t, want %t", err, got, want)
		}
	}
}
