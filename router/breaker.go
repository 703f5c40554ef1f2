package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// circuitPoll is how often a process looks at what the others have found out.
const circuitPoll = time.Second

// circuits is where the breakers of all processes meet.
type circuits interface {
	Circuits(ctx context.Context) ([]schema.Circuit, error)
	CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (schema.Circuit, error)
	CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error)
	CircuitClosed(ctx context.Context, handler string) error
	DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error)
}

// breaker keeps a handler from being called while what it calls is down, and while it is disabled. A nil breaker lets
// everything through.
type breaker struct {
	store   circuits
	handler string
	policy  handlers.Breaker
	nudge   func() // wakes the forwarder
	log     *slog.Logger

	mu      sync.Mutex
	last    schema.Circuit // as it was last seen, and closed if this breaker never opens
	known   bool           // the store has a circuit of the handler
	until   time.Time      // open: when the next probe may be asked for
	asking  bool           // somebody does
	spare   bool           // we may probe, and who was to do it did not
	waiting int
	version int           // counts what we have found out ourselves
	changed chan struct{} // closed when waiters should look again
}

// newBreaker returns the breaker of a handler. Whatever its policy, an operator may disable it, as long as there is a
// database that says so.
func newBreaker(store Store, handler string, policy handlers.Breaker, nudge func(), log *slog.Logger) *breaker {
	if _, none := store.(noDatabase); none {
		return nil
	}
	return &breaker{store: store, handler: handler, policy: policy, nudge: nudge, log: log, changed: make(chan struct{})}
}

// counts reports whether anything comes of failures.
func (b *breaker) counts() bool { return b.policy.Failures > 0 || b.policy.DisableAfter > 0 }

// holds reports whether messages wait at this time.
func (b *breaker) holds() bool {
	c, _ := b.state()
	return c.Open
}

// await holds r back while the circuit is open, unless r is the one that is to probe; false if r should not begin any
// more.
func (b *breaker) await(r *run, runs *runs) bool {
	if b == nil {
		return true
	}
	for {
		b.mu.Lock()
		changed, wait, ask := b.changed, b.until.Sub(runs.now()), false
		switch {
		case !b.last.Open:
			b.mu.Unlock()
			return true
		case b.last.Disabled:
			wait = circuitPoll
		case b.spare:
			b.spare, r.probe = false, true
			b.mu.Unlock()
			return true
		case wait > 0:
		case b.asking:
			wait = circuitPoll
		default:
			b.asking, ask = true, true
		}
		b.waiting++
		b.mu.Unlock()
		again := true
		if ask {
			r.probe = b.ask(runs)
		} else {
			again = awaitChange(r, runs, changed, wait)
		}
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		if r.probe || !again {
			return again
		}
	}
}

func awaitChange(r *run, runs *runs, changed <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.ctx.Done():
		return false
	case <-runs.stopping:
		return false
	}
	return true
}

// ask tries to become the one process that probes.
func (b *breaker) ask(runs *runs) bool {
	ctx, cancel := context.WithTimeout(runs.intake, storeTimeout)
	defer cancel()
	ok, err := b.store.CircuitProbe(ctx, b.handler, b.policy.Cooldown)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = false
	if ok && err == nil {
		b.until = runs.now().Add(b.policy.Cooldown)
		return true
	}
	b.until = runs.now().Add(circuitPoll) // until then we hear of what has changed
	return false
}

// stops reports whether the circuit has been opened since r was let through.
func (b *breaker) stops(r *run) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.Disabled {
		r.probe = false
	}
	return b.last.Open && !r.probe
}

// note tells the circuit how a run has ended. What a handler gives up for good, snoozes or cancels says that the other
// side has answered, but not that it is well: it ends a probe and counts for nothing else. A panic and a database that is
// away say nothing about the other side, nor does a run that was stopped or has lost its lease.
func (b *breaker) note(r *run, err error, d handlers.Decision) error {
	if b == nil {
		return nil
	}
	var panicked *handlers.PanicError
	switch {
	case !r.started || r.failure != nil && errors.As(err, &panicked), errors.Is(r.failure, schema.ErrUnavailable),
		errors.Is(r.failure, schema.ErrRetryTransaction):
	case r.failure == nil:
		return b.closed(r)
	case !b.counts():
	case d.Verdict == handlers.Retry, d.Verdict == handlers.Dead && d.Cause == schema.CauseExhausted:
		return b.failed(r, err)
	case r.probe && (d.Verdict == handlers.Dead || d.Verdict == handlers.Snoozed || d.Verdict == handlers.Cancelled):
		return b.closed(r)
	}
	b.giveBack(r)
	return nil
}

// giveBack lets another message of this process probe in place of r.
func (b *breaker) giveBack(r *run) {
	if b == nil || !r.probe {
		return
	}
	r.probe = false
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = b.last.Open
	b.wake()
}

func (b *breaker) failed(r *run, err error) error {
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	now := time.Now()
	c, ferr := b.store.CircuitFailed(ctx, b.handler, schema.Reason(err), b.policy.Failures, b.policy.Cooldown)
	if ferr != nil {
		b.giveBack(r)
		return fmt.Errorf("count failure of the target: %w", ferr)
	}
	r.probe = false
	b.learn(c, true, now)
	if b.policy.DisableAfter > 0 && !c.Disabled && c.Failing >= b.policy.DisableAfter {
		return b.disable(ctx, err, b.policy.DisableAfter)
	}
	return nil
}

// gone disables the handler because a run has found that whom it calls wants nothing more, if the policy says so.
func (b *breaker) gone(r *run, err error) bool {
	if b == nil || b.policy.DisableAfter == 0 {
		return false
	}
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	if failed := b.disable(ctx, err, 0); failed != nil {
		b.log.Warn("circuit not updated", append(r.fields(), "error", schema.Reason(failed))...)
		b.giveBack(r)
	}
	r.probe = false
	return true
}

func (b *breaker) disable(ctx context.Context, why error, failing time.Duration) error {
	now := time.Now()
	c, changed, err := b.store.DisableHandler(ctx, b.handler, schema.Reason(why), failing)
	if err != nil {
		return fmt.Errorf("disable the target: %w", err)
	}
	b.learn(c, c.Handler != "", now)
	if changed {
		b.nudge()
	}
	return nil
}

// learn takes over what this process has found out itself.
func (b *breaker) learn(c schema.Circuit, found bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	b.set(c, found, now)
}

// closed forgets the failures. Without any it costs nothing, and a handler that is disabled stays so.
func (b *breaker) closed(r *run) error {
	r.probe = false
	b.mu.Lock()
	failing := b.known && !b.last.Disabled
	b.mu.Unlock()
	if !failing {
		return nil
	}
	ctx, cancel := storeContext(r.ctx)
	defer cancel()
	if err := b.store.CircuitClosed(ctx, b.handler); err != nil {
		return fmt.Errorf("close the circuit of the target: %w", err)
	}
	b.learn(schema.Circuit{}, false, time.Time{})
	return nil
}

// heard takes over what the store says, unless we have found out something ourselves since version.
func (b *breaker) heard(c schema.Circuit, found bool, version int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version == version {
		b.set(c, found, now)
	}
}

func (b *breaker) set(c schema.Circuit, found bool, now time.Time) {
	c.Open = c.Disabled || c.Open && b.policy.Failures > 0
	was := b.last
	b.known, b.last = found, c
	b.until = now.Add(max(c.Left, 0))
	if c.Left > b.policy.Cooldown { // the clock has gone back since: to ask puts it right
		b.until = now
	}
	switch {
	case c.Disabled && !was.Disabled:
		b.spare = false
		b.log.Error("the target is disabled, its messages wait until it is enabled", "target", b.handler, "since", c.Since, "failures", c.Failures, "reason", c.Reason)
	case was.Disabled && !c.Disabled:
		b.log.Info("the target is enabled, its messages go on", "target", b.handler)
	case c.Open && !was.Open:
		b.log.Warn("the target fails, its messages wait", "target", b.handler, "failures", c.Failures, "cooldown", b.policy.Cooldown, "error", c.Reason)
	case was.Open && !c.Open:
		b.spare = false
		b.log.Info("the target works again, its messages go on", "target", b.handler)
	}
	if was.Open != c.Open || was.Disabled != c.Disabled {
		b.wake()
	}
}

func (b *breaker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// state returns the circuit as it was last seen, and how many messages wait because of it.
func (b *breaker) state() (c schema.Circuit, waiting int) {
	if b == nil {
		return c, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.waiting
}

// watchCircuits keeps the breakers of all chains up to date until ctx ends, by one question a second.
func (s *session) watchCircuits(ctx context.Context) {
	ticker := time.NewTicker(circuitPoll)
	defer ticker.Stop()
	for {
		s.lookAtCircuits(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) lookAtCircuits(ctx context.Context) {
	versions := make(map[*breaker]int)
	for _, c := range s.b.chains {
		if c.breaker != nil {
			c.breaker.mu.Lock()
			versions[c.breaker] = c.breaker.version
			c.breaker.mu.Unlock()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now := s.runs.now()
	list, err := s.b.cfg.Store.Circuits(ctx)
	if err != nil { // whoever handles anything says so
		return
	}
	found := make(map[string]schema.Circuit, len(list))
	for _, c := range list {
		found[c.Handler] = c
	}
	for b, version := range versions {
		c, ok := found[b.handler]
		b.heard(c, ok, version, now)
	}
}
