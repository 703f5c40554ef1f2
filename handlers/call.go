package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Call is what a handler may know about the run it is part of, besides the envelope.
type Call struct {
	Handler     string      // name of the target or subscription
	ID          string      // the message's id; a replay has an id of its own, but the same Key
	Key         string      // idempotency key: the same for every run of this message, replays included
	Attempt     int         // 1 for the first attempt; a replay starts again at 1
	MaxAttempts int         // the policy's, or that of the job's type
	Replay      int         // how often an operator has put the message back
	Tenant      string      // scopes the key
	Actor       string      // who caused the message
	RequestID   string      // the request that caused it
	TraceParent string      // W3C traceparent
	TraceState  string      // W3C tracestate
	Deadline    time.Time   // when the attempt's time is up; zero without a limit
	Unit        schema.Unit // the transaction of the run in [ModeTx], else nil
}

// CallOf returns what a call of the handler knows from the message itself. Attempts, deadline and transaction are for
// those who run handlers to add.
func CallOf(handler string, env schema.Envelope) Call {
	c := Call{
		Handler: handler, ID: env.ID, Key: env.IdempotencyKey(), Tenant: env.Tenant, Actor: env.Actor, RequestID: env.RequestID,
		TraceParent: env.TraceParent, TraceState: env.TraceState,
	}
	if env.Replay != nil {
		c.Replay = env.Replay.Number
	}
	return c
}

type callKey struct{}

// running is a call with what the handler answers.
type running struct {
	call   Call
	mu     sync.Mutex
	report json.RawMessage
}

// WithCall returns ctx for a handler that is part of c. The router does this; tests of handlers may.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, &running{call: c})
}

// CallFrom returns the run that ctx belongs to; ok is false outside of handlers.
func CallFrom(ctx context.Context) (c Call, ok bool) {
	r, ok := ctx.Value(callKey{}).(*running)
	if !ok {
		return Call{}, false
	}
	return r.call, true
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
