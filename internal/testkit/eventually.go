package testkit

import (
	"context"
	"testing"
	"time"
)

// pollInterval is short enough not to slow a test down and long enough not to keep a core busy.
const pollInterval = 10 * time.Millisecond

// Eventually calls check until it returns nil, and fails the test with its last error if that takes longer than timeout.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", timeout, err)
		case <-tick.C:
		}
	}
}
