package kvinbox

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Age makes the record of a key d older: what is left of its lease and of its wait is that much shorter.
func (in *Inbox) Age(ctx context.Context, key schema.InboxKey, d time.Duration) error {
	_, err := in.change(ctx, key, func(e entry) (schema.InboxRow, bool, error) {
		if e.row.State != schema.InboxRunning {
			return e.row, false, nil
		}
		if !e.row.LeaseUntil.IsZero() {
			e.row.LeaseUntil = e.row.LeaseUntil.Add(-d)
		}
		if !e.row.NextTry.IsZero() {
			e.row.NextTry = e.row.NextTry.Add(-d)
		}
		return e.row, true, nil
	})
	return err
}
