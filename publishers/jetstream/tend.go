package jetstream

import (
	"context"
	"fmt"
	"time"
)

const (
	tendLimit = 500                   // bounds each step of the upkeep, so that no lock is held for long
	tendPause = 50 * time.Millisecond // at least, between two steps while there is more to do
	tendShare = 4                     // a step is followed by a pause of so many times its length, to let others in
)

// tend moves what is due into the outbox and returns how many rows that were.
func (f *Forwarder) tend(ctx context.Context) (moved int, err error) {
	for {
		res, err := f.store.Tend(ctx, tendLimit)
		if err != nil {
			return moved, fmt.Errorf("tend outbox: %w", err)
		}
		moved += res.Moved
		if res.Moved < tendLimit {
			return moved, nil
		}
	}
}

// tendLoop tends the outbox regularly and whenever a scheduled message is due.
func (f *Forwarder) tendLoop(ctx context.Context) {
	for failures := 0; ; {
		wait := f.cfg.TendEvery
		began := time.Now()
		res, err := f.store.Tend(ctx, tendLimit)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			f.log.WarnContext(ctx, "tend outbox", "error", err)
			wait = f.backoff(failures, "tend")
		default:
			failures = 0
			if res.Moved > 0 {
				f.Nudge()
			}
			switch {
			case res.Moved >= tendLimit:
				wait = 0
			case res.More:
				wait = min(wait, max(tendPause, tendShare*time.Since(began)))
			case res.NextDue > 0:
				wait = min(wait, res.NextDue)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
