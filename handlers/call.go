package handlers

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// A Call is what a handler may know about the run it is part of, besides the envelope.
type Call struct {
	Handler     string      // name of the target or subscription
	Key         string      // idempotency key: the same for every run of this message, replays included
	Attempt     int         // 1 for the first attempt; a replay starts again at 1
	MaxAttempts int         // the policy's
	Replay      int         // how often an operator has put the message back
	Unit        schema.Unit // the transaction of the run in [ModeTx], else nil
}

type callKey struct{}

// WithCall returns ctx for a handler that is part of c. The router does this; tests of handlers may.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallFrom returns the run that ctx belongs to; ok is false outside of handlers.
func CallFrom(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}

// Attempt returns the number of the attempt that ctx belongs to, 0 outside of handlers.
func Attempt(ctx context.Context) int {
	c, _ := CallFrom(ctx)
	return c.Attempt
}

// Key returns the idempotency key of the run that ctx belongs to, empty outside of handlers.
func Key(ctx context.Context) string {
	c, _ := CallFrom(ctx)
	return c.Key
}

// Tx returns the transaction in which the message is marked as handled: a pgx.Tx or an *sql.Tx. What is written with
// it, envelopes for the outbox included, commits together with that mark when the handler returns nil. Only handlers
// with [ModeTx] have one; the error for others is [Permanent].
func Tx[T any](ctx context.Context) (T, error) {
	c, _ := CallFrom(ctx)
	if c.Unit == nil {
		var none T
		return none, Permanent(fmt.Errorf("handler %q has no transaction: its policy's mode is not %q", c.Handler, ModeTx))
	}
	got := c.Unit.Tx()
	tx, ok := got.(T)
	if err, failed := got.(error); failed {
		return tx, fmt.Errorf("handler %q: %w", c.Handler, err)
	}
	if !ok {
		return tx, Permanent(fmt.Errorf("handler %q: its transaction is a %T, not a %T", c.Handler, got, tx))
	}
	return tx, nil
}
