package inprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
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
	defer func() { // also when the handler ends its goroutine
		if v := recover(); v != nil { // of Config.Units
			res.err = &handlers.PanicError{Value: v, Stack: debug.Stack()}
		}
		c.settle(ctx, it, res)
	}()
	env, err := it.envelope()
	if err != nil {
		res.err = err
		return
	}
	retry, timeout := it.lane.policy.Rules(it.lane.handler, env)
	timed, stop := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer stop()
	call := handlers.CallOf(it.lane.name, env)
	call.Attempt, call.MaxAttempts = it.attempts+1, retry.MaxAttempts
	call.Deadline, _ = timed.Deadline()
	if it.lane.policy.Mode == handlers.ModeTx {
		c.inTransaction(timed, it, env, call, &res)
	} else {
		c.call(timed, it, env, call, &res)
	}
	if res.err != nil && context.Cause(timed) == errTimeout {
		res.err = fmt.Errorf("no result within %v: %w", timeout, res.err)
	}
}

// inTransaction runs the handler inside a transaction, whose failure to commit is the run's.
func (c *core) inTransaction(ctx context.Context, it *item, env schema.Envelope, call handlers.Call, res *result) {
	err := c.cfg.Units(ctx, func(inner schema.Unit) error {
		u := &unit{Unit: inner, core: c, now: c.now(), keys: make(map[[32]byte]usedKey)}
		call.Unit = u
		c.call(ctx, it, env, call, res)
		res.msgs = u.msgs
		return res.err
	})
	if res.err = err; err != nil {
		res.msgs = nil
	}
}

// call calls the handler, with the hooks around it, and turns a panic into an error.
func (c *core) call(ctx context.Context, it *item, env schema.Envelope, call handlers.Call, res *result) {
	res.hooks = handlers.HookList(c.cfg.Hooks).Start(handlers.WithCall(ctx, call), c.cfg.Logger, env)
	ctx = res.hooks.Context()
	began := time.Now()
	res.err = errGoexit
	defer func() {
		if v := recover(); v != nil {
			res.err = &handlers.PanicError{Value: v, Stack: debug.Stack()}
		}
		res.hooks.End(res.err, time.Since(began))
	}()
	res.err = it.lane.handler.Handle(ctx, env)
	res.report = handlers.ReportOf(ctx)
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
