package jetstream

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// errLost reports that another owner has, or may have, the shard: step down and write nothing.
var errLost = schema.WithKind(schema.NotMine, schema.ErrLeaseLost)

// leases keeps the leases of one process alive, all of them by one statement.
type leases struct {
	store Store
	ttl   time.Duration
	log   *slog.Logger

	mu   sync.Mutex
	held map[string]*lease
}

// A lease ends the work under it in time: not when the database says so, but before that, by our own clock that only
// runs forward.
type lease struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newLeases(store Store, ttl time.Duration, log *slog.Logger) *leases {
	return &leases{store: store, ttl: ttl, log: log, held: make(map[string]*lease)}
}

// margin is left between our deadline and the database's.
func (l *leases) margin() time.Duration { return l.ttl / 5 }

// hold watches the lease of token, which was asked for at asked. cancel is called with errLost when it is not certain
// any more that the lease is ours.
func (l *leases) hold(token string, asked time.Time, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Until(asked.Add(l.ttl - l.margin()))
	l.held[token] = &lease{cancel: cancel, timer: time.AfterFunc(left, func() { cancel(errLost) })}
}

func (l *leases) drop(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[token]; h != nil {
		h.timer.Stop()
		delete(l.held, token)
	}
}

// keep renews until ctx ends.
func (l *leases) keep(ctx context.Context) {
	wait := l.ttl / 3
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "renew leases", "error", err)
			wait = l.ttl / 10
			continue
		}
		wait = l.ttl / 3
	}
}

func (l *leases) renew(ctx context.Context) error {
	l.mu.Lock()
	tokens := make([]string, 0, len(l.held))
	for t := range l.held {
		tokens = append(tokens, t)
	}
	l.mu.Unlock()
	if len(tokens) == 0 {
		return nil
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.ttl/3)
	defer cancel()
	killpoint.At(killpoint.BeforeRenewal)
	held, err := l.store.Renew(ctx, tokens, l.ttl)
	if err != nil {
		return err
	}
	killpoint.At(killpoint.AfterRenewal)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tokens {
		h := l.held[t]
		switch {
		case h == nil: // dropped meanwhile
		case !slices.Contains(held, t):
			h.timer.Stop()
			h.cancel(errLost)
		case h.timer.Stop(): // a timer that has fired has ended the work for good
			h.timer.Reset(time.Until(asked.Add(l.ttl - l.margin())))
		}
	}
	return nil
}
