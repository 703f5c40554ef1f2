package handlers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// Inherit fills in what a new envelope shares with the message whose handler makes it: tenant, actor, request and trace,
// each only where it is empty. Outside of handlers it does nothing.
func Inherit(ctx context.Context) schema.Option {
	c, _ := CallFrom(ctx)
	return func(e *schema.Envelope) {
		if e.Tenant == "" {
			e.Tenant = c.Tenant
		}
		if e.Actor == "" {
			e.Actor = c.Actor
		}
		if e.RequestID == "" {
			e.RequestID = c.RequestID
		}
		if e.TraceParent == "" {
			e.TraceParent, e.TraceState = c.TraceParent, c.TraceState
		}
	}
}

// Publish puts envelopes into the outbox in the transaction in which the message is marked as handled: they exist if and
// only if this run completes. Each is given what [Inherit] says. Only handlers with [ModeTx] can do this; the error for
// others is [Permanent].
func Publish(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error) {
	c, _ := CallFrom(ctx)
	if c.Unit == nil {
		return nil, Permanent(fmt.Errorf("handler %q cannot publish with its own end: its policy's mode is not %q", c.Handler, ModeTx))
	}
	inherit := Inherit(ctx)
	out := make([]schema.Envelope, len(envs))
	for i, env := range envs {
		inherit(&env)
		out[i] = env
	}
	receipts, err := c.Unit.Append(ctx, out)
	if err != nil {
		return nil, fmt.Errorf("handler %q: publish: %w", c.Handler, err)
	}
	return receipts, nil
}

// MaxReport is the longest answer that [Report] takes, as JSON.
const MaxReport = 256 << 10

// Report sets what the handler answers to whoever asked for a report of the job's outcome, see [schema.ReplyTo]: result
// as JSON. The last call counts, and only if the run succeeds. Without anybody who asked nothing comes of it. A result
// that cannot be encoded or is too long is [Permanent].
func Report(ctx context.Context, result any) error {
	data, err := json.Marshal(result)
	if err != nil {
		return Permanent(fmt.Errorf("report: encode %T: %w", result, err))
	}
	if len(data) > MaxReport {
		return Permanent(fmt.Errorf("report: %d bytes are too many, at most %d", len(data), MaxReport))
	}
	if r, ok := ctx.Value(callKey{}).(*running); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report = data
	}
	return nil
}

// ReportOf returns what the handler that was given ctx has answered with [Report], nil if nothing. It is for those who
// run handlers, and for their tests.
func ReportOf(ctx context.Context) json.RawMessage {
	r, ok := ctx.Value(callKey{}).(*running)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report
}
