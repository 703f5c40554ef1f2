package inprocess

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// unit is the transaction of a handler. What the handler publishes in it goes through the queue when it has committed.
type unit struct {
	schema.Unit
	core *core
	now  time.Time
	keys map[[32]byte]usedKey
	msgs []*message
}

// Append checks the envelopes and keeps them for the commit.
func (u *unit) Append(_ context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	msgs, err := u.core.prepare(envs, u.now)
	if err != nil {
		return nil, err
	}
	u.core.mu.Lock()
	defer u.core.mu.Unlock()
	fresh, receipts, err := u.core.resolve(msgs, u.keys, u.now)
	if err != nil {
		return nil, err
	}
	u.msgs = append(u.msgs, fresh...)
	return receipts, nil
}
