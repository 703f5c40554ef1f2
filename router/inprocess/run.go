package inprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// result is how a run has ended.
type result struct {
	hooks  *handlers.HookRun // nil when the handler was not called
	err    error
	report json.RawMessage
	msgs   []*message // published in the run's transaction, which has committed
}

// runItem runs an item's handler once and settles it.
func (c *core) runItem(s *session, it *item) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	res := result{err: errGoexit}
	defer func() { c.settle(ctx, it, res) }() // also when the handler ends its goroutine
	res.err = handlers.Recover(func() error { return c.attempt(ctx, it, &res) })
}

// attempt runs an item's handler with the time and the transaction that its policy gives it.
func (c *core) attempt(ctx context.Context, it *item, res *result) error {
	env, err := it.envelope()
	if err != nil {
		return err
	}
	retry, timeout := it.lane.policy.Rules(it.lane.handler, env)
	ctx, stop := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer stop()
	call := handlers.CallOf(it.lane.name, env)
	call.Attempt, call.MaxAttempts = it.attempts+1, retry.MaxAttempts
	call.Deadline, _ = ctx.Deadline()
	if it.lane.policy.Mode == handlers.ModeTx {
		err = c.inTransaction(ctx, it, env, call, res)
	} else {
		err = c.call(ctx, it, env, call, res)
	}
	if err != nil && context.Cause(ctx) == errTimeout {
		err = fmt.Errorf("no result within %v: %w", timeout, err)
	}
	return err
}

// inTransaction runs the handler inside a transaction, whose failure to commit is the run's.
func (c *core) inTransaction(ctx context.Context, it *item, env schema.Envelope, call handlers.Call, res *result) error {
	err := c.cfg.Units(ctx, func(inner schema.Unit) error {
		u := &unit{Unit: inner, core: c, now: c.now(), keys: make(map[[32]byte]usedKey)}
		call.Unit = u
		err := c.call(ctx, it, env, call, res)
		res.msgs = u.msgs
		return err
	})
	if err != nil {
		res.msgs = nil
	}
	return err
}

// call calls the handler, with the hooks around it.
func (c *core) call(ctx context.Context, it *item, env schema.Envelope, call handlers.Call, res *result) error {
	res.hooks = handlers.HookList(c.cfg.Hooks).Start(handlers.WithCall(ctx, call), c.cfg.Logger, env)
	ctx = res.hooks.Context()
	began := time.Now()
	err := errGoexit
	defer func() { res.hooks.End(err, time.Since(began)) }()
	err = handlers.Recover(func() error { return it.lane.handler.Handle(ctx, env) })
	res.report = handlers.ReportOf(ctx)
	return err
}

// judge gives err the kind that counts: only we know whether we stopped the run, whatever the handler says.
func judge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errStopped) {
		return schema.WithKind(schema.Shutdown, err)
	}
	if k := schema.KindOf(err); k == schema.Shutdown || k == schema.NotMine {
		return schema.WithKind(schema.Temporary, err)
	}
	return err
}
