package inprocess

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Tally says what a drain did and what it left.
type Tally struct {
	Handled   int64 `json:"handled"`
	Retried   int64 `json:"retried"` // failed attempts that will be repeated or were
	Snoozed   int64 `json:"snoozed"`
	Cancelled int64 `json:"cancelled"`
	Dead      int64 `json:"dead"`    // given up
	Parked    int64 `json:"parked"`  // kept now because nobody here handles them
	Waiting   int64 `json:"waiting"` // left for their next attempt or their time, or by an error
}

func (c *core) begin(ctx context.Context) (*session, error) {
	c.mu.Lock()
	defer c.unlock()
	if c.session != nil {
		return nil, ErrBusy
	}
	s := &session{before: c.tally}
	s.ctx, s.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	c.session = s
	c.unpark()
	c.dispatch()
	return s, nil
}

// end returns what the session did.
func (c *core) end(s *session) Tally {
	c.mu.Lock()
	defer c.unlock()
	c.stopAlarm()
	c.session = nil
	s.cut(nil)
	t := c.tally
	t.Handled -= s.before.Handled
	t.Retried -= s.before.Retried
	t.Snoozed -= s.before.Snoozed
	t.Cancelled -= s.before.Cancelled
	t.Dead -= s.before.Dead
	t.Parked = int64(len(c.parked))
	t.Waiting = int64(c.kept - len(c.parked) - len(c.letters))
	return t
}

func (c *core) drainOnce(ctx context.Context, all bool) (Tally, error) {
	s, err := c.begin(ctx)
	if err != nil {
		return Tally{}, err
	}
	err = c.drain(ctx, all)
	if err != nil {
		if n := c.halt(s, c.cfg.CloseTimeout); n > 0 {
			err = errors.Join(err, fmt.Errorf("%w: %d handlers", ErrUnfinished, n))
		}
	}
	return c.end(s), err
}

// drain waits until nothing is due and nothing runs; with all, until nothing waits either.
func (c *core) drain(ctx context.Context, all bool) error {
	skipper, _ := c.cfg.Clock.(Skipper)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.mu.Lock()
		c.dispatch()
		next, running := c.next(c.now(), all), c.running
		c.unlock()
		if running == 0 {
			if next.IsZero() {
				return nil
			}
			if skipper != nil {
				skipper.SkipTo(next)
				continue
			}
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
		}
	}
}

// halt starts nothing any more and waits for what runs; when time is up it ends the contexts of what still does and
// waits a little for that. It returns how many runs it had to end.
func (c *core) halt(s *session, limit time.Duration) int {
	c.mu.Lock()
	s.closed = true
	c.unlock()
	n := c.awaitQuiet(limit) // counted before they are ended: some obey at once
	if n > 0 {
		s.cut(errStopped)
		c.awaitQuiet(min(c.cfg.CloseTimeout, 5*time.Second))
	}
	return n
}

// awaitQuiet waits until nothing runs and returns how many runs there still are when time is up.
func (c *core) awaitQuiet(limit time.Duration) int {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		running := c.running
		c.unlock()
		if running == 0 {
			return 0
		}
		select {
		case <-c.changed:
		case <-timer.C:
			return running
		}
	}
}

func (c *core) run(ctx context.Context) error {
	if !c.cfg.AllowLoss {
		return errRefused()
	}
	s, err := c.begin(ctx)
	if err != nil {
		return err
	}
	<-ctx.Done()
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CloseTimeout)
	defer stop()
	err = c.drain(limited, false)
	cut := c.halt(s, 0)
	left := c.end(s)
	if left.Waiting > 0 || left.Parked > 0 {
		c.cfg.Logger.Warn("messages are lost if the process ends now", "waiting", left.Waiting, "parked", left.Parked)
	}
	if err != nil {
		return fmt.Errorf("%w: after %v %d handlers were stopped and %d messages wait", ErrUnfinished, c.cfg.CloseTimeout, cut, left.Waiting)
	}
	return nil
}
