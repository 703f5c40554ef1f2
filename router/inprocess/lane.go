package inprocess

import (
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// lane is a target or a subscription, with what waits for it.
type lane struct {
	name    string
	what    string
	takes   func(event string) bool // of a subscription, nil for a target
	handler handlers.Handler
	policy  handlers.Policy

	ready   []*item              // may start, in this order
	chains  map[[32]byte][]*item // by ordering key; only the first may be ready, run or wait for its next attempt
	inbox   *memory[record]
	running int

	nextStart time.Time // by the policy's rate
	failures  int       // in a row, for the breaker
	openUntil time.Time // the breaker's pause
	probing   bool      // the run that may close the breaker is under way
}

// item is a message on its way to one handler.
type item struct {
	*message
	lane     *lane
	chain    [32]byte // with chained: hash of its ordering key
	chained  bool
	attempts int // that failed
	runs     uint64
}

// record is what a handler's inbox knows about a key.
type record struct {
	owner     *item // what is running or waits for its next attempt; nil when the key is settled
	id        string
	body      [32]byte
	replay    int
	state     schema.InboxState
	cause     schema.Cause
	reason    string
	followers []*item // further messages with the key, until it is settled
}

// check reports what a queue cannot do for a target or subscription.
func (l *lane) check(cfg Config) error {
	if l.policy.Mode == handlers.ModeTx && cfg.Units == nil {
		return schema.WithKind(schema.Permanent,
			fmt.Errorf("%s %q: its mode is %v, and Config.Units gives no transactions", l.what, l.name, handlers.ModeTx))
	}
	if l.policy.Breaker.DisableAfter > 0 {
		return schema.WithKind(schema.Permanent,
			fmt.Errorf("%s %q: breaker.disable_after: nobody could enable it again in a queue that is lost when the process ends", l.what, l.name))
	}
	typed, ok := l.handler.(interface{ Specs() []schema.JobSpec })
	if !ok {
		return nil
	}
	for _, s := range typed.Specs() {
		if s.Needs > schema.InMemory {
			return schema.WithKind(schema.Permanent,
				fmt.Errorf("%s %q: job %s.%s needs %v, and the in-process queue gives %v: it is lost when the process ends",
					l.what, l.name, s.Target, s.Action, s.Needs, schema.InMemory))
		}
	}
	return nil
}

// enter lines a message up.
func (l *lane) enter(it *item) {
	if l.policy.Ordered {
		it.chain, it.chained = it.env.OrderHash()
	}
	if it.chained {
		l.chains[it.chain] = append(l.chains[it.chain], it)
		if len(l.chains[it.chain]) > 1 {
			return
		}
	}
	l.ready = append(l.ready, it)
}

// leave ends an item's turn: the next one with its ordering key may start.
func (l *lane) leave(it *item) {
	if !it.chained {
		return
	}
	rest := l.chains[it.chain][1:]
	if len(rest) == 0 {
		delete(l.chains, it.chain)
		return
	}
	l.chains[it.chain] = rest
	l.ready = append(l.ready, rest[0])
}

// mayStart reports whether the first item that is ready may start now.
func (l *lane) mayStart(now time.Time) bool {
	return len(l.ready) > 0 && l.running < l.policy.Concurrency && !l.nextStart.After(now) && !l.held(now)
}

// held reports whether the breaker lets nothing through at this time.
func (l *lane) held(now time.Time) bool { return l.isOpen() && (l.probing || l.openUntil.After(now)) }

func (l *lane) isOpen() bool {
	return l.policy.Breaker.Failures > 0 && l.failures >= l.policy.Breaker.Failures
}

func (l *lane) starts(now time.Time) {
	l.running++
	l.probing = l.isOpen()
	if l.policy.Rate > 0 {
		l.nextStart = now.Add(time.Duration(float64(time.Second) / l.policy.Rate))
	}
}

// judged tells the breaker how a run has ended.
func (l *lane) judged(d handlers.Decision, now time.Time) {
	l.probing = false
	switch {
	case d.Verdict == handlers.Retry, d.Cause == schema.CauseExhausted:
		if l.failures++; l.isOpen() {
			l.openUntil = now.Add(l.policy.Breaker.Cooldown)
		}
	case d.Verdict == handlers.Ack, d.Verdict == handlers.Dead, d.Verdict == handlers.Cancelled: // the other side has answered
		l.failures, l.openUntil = 0, time.Time{}
	}
}
