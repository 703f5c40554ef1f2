package jetstream

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// Stops tells which shards are stopped, or will be when somebody takes them up, and why. It changes nothing and is
// quicker than a plan: it looks at no rows.
func (r *Repairer) Stops(ctx context.Context) ([]*StopError, error) {
	info, err := r.store.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for stops: %w", err)
	}
	var stops []*StopError
	for _, stream := range schema.Streams {
		ledgers, err := r.store.Shards(ctx, stream)
		if err != nil {
			return nil, fmt.Errorf("look for stops: %w", err)
		}
		for _, ledger := range ledgers {
			if !info.Bound {
				stop, detail := stopFor(false, ledger, storedCursor{}, false)
				stops = append(stops, &StopError{Shard: ledger.ShardRef, Stop: stop, Detail: detail})
				continue
			}
			x := &patient{r: r, info: info, ledger: ledger}
			if err := x.examine(ctx); err != nil {
				return nil, fmt.Errorf("look for stops: %w", err)
			}
			if x.stop != "" {
				stops = append(stops, &StopError{Shard: ledger.ShardRef, Stop: x.stop, Detail: x.detail})
			}
		}
	}
	return stops, nil
}
