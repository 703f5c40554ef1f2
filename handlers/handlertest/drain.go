package handlertest

import (
	"context"
	"testing"
	"time"
)

// A Drainer handles what waits and tells what it did: *router.Bridge and *inprocess.Queue. T is its tally.
type Drainer[T any] interface {
	Drain(ctx context.Context) (T, error)
}

// drainTime is more than any test should need.
const drainTime = time.Minute

// DrainUntilEmpty handles everything that waits and returns the tally. It fails the test if that takes longer than a
// minute or ends with an error.
//
// The in-process queue also waits out retries and due times (with a [Clock] that takes no time). A bridge leaves messages
// that wait for their next attempt or their time, as its Drain does: let what a test expects to succeed succeed.
func DrainUntilEmpty[T any](t testing.TB, d Drainer[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), drainTime)
	defer cancel()
	drain := d.Drain
	if all, ok := d.(interface {
		DrainUntilEmpty(ctx context.Context) (T, error)
	}); ok {
		drain = all.DrainUntilEmpty
	}
	tally, err := drain(ctx)
	if err != nil {
		t.Fatalf("drain until empty: %v (so far: %+v)", err, tally)
	}
	return tally
}
