package router

import (
	"context"
	"sync"
	"time"
)

// lazyContext is a context that costs next to nothing until somebody wants to hear of its end: a handler that is done at
// once does not.
type lazyContext struct {
	parent   context.Context
	deadline time.Time // zero for none
	cause    error     // when that has passed
	key, val any       // that it carries beside those of its parent

	mu   sync.Mutex
	real context.Context // nil as long as nobody has waited
	end  context.CancelCauseFunc
	over bool
}

// Deadline is that of the context or of its parent, whichever is earlier.
func (c *lazyContext) Deadline() (time.Time, bool) {
	at, ok := c.parent.Deadline()
	if c.deadline.IsZero() || ok && at.Before(c.deadline) {
		return at, ok
	}
	return c.deadline, true
}

func (c *lazyContext) Done() <-chan struct{} { return c.made().Done() }

func (c *lazyContext) Err() error {
	c.mu.Lock()
	real, over := c.real, c.over
	c.mu.Unlock()
	if real == nil && !over && (c.deadline.IsZero() || time.Now().Before(c.deadline)) {
		return c.parent.Err()
	}
	return c.made().Err()
}

// Value asks the context itself once it is made, which is how others that are derived from it find it.
func (c *lazyContext) Value(key any) any {
	if c.key != nil && key == c.key {
		return c.val
	}
	c.mu.Lock()
	real := c.real
	c.mu.Unlock()
	if real != nil {
		return real.Value(key)
	}
	return c.parent.Value(key)
}

func (c *lazyContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.makeLocked()
}

func (c *lazyContext) makeLocked() context.Context {
	if c.real == nil {
		ctx, stop := c.parent, context.CancelFunc(func() {})
		if !c.deadline.IsZero() {
			ctx, stop = context.WithDeadlineCause(c.parent, c.deadline, c.cause)
		}
		var end context.CancelCauseFunc
		c.real, end = context.WithCancelCause(ctx)
		c.end = func(cause error) {
			end(cause)
			stop()
		}
		if c.over {
			c.end(nil)
		}
	}
	return c.real
}

// cancel ends the context. A cause makes it, so that it is there to be asked for.
func (c *lazyContext) cancel(cause error) {
	c.mu.Lock()
	c.over = true
	if c.real == nil && cause == nil {
		c.mu.Unlock()
		return
	}
	c.makeLocked()
	c.mu.Unlock()
	c.end(cause)
}
