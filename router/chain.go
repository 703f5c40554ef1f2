package router

import (
	"context"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

const (
	storeTimeout = 10 * time.Second // of one call of the inbox or of the letter box
	firstPause   = 100 * time.Millisecond
	maxPause     = 5 * time.Second
)

// chain is what the messages of one target or subscription go through.
type chain struct {
	name     string
	sources  []source
	handler  handlers.Handler
	policy   handlers.Policy // without zero fields
	subjects schema.Subjects
	source   string // that messages of our own outbox name
	events   string // name of the stream of events
	reports  bool   // outcomes can be reported
	lease    time.Duration
	inbox    Inbox
	letters  letterBox
	runs     *runs
	slots    chan struct{} // one place for each handler that may run
	trials   chan struct{} // one place
	units    chan struct{} // one place for each transaction that handlers of the bridge may hold; nil if this one needs none
	pace     *pace
	breaker  *breaker // nil without a database
	nudge    func()   // wakes the forwarder; nil if there is none
	hooks    handlers.HookList
	stats    stats
	log      *slog.Logger

	firstPause time.Duration // while the database is away
}

// middlewares returns the way in, outermost first.
//
// Settle is outermost, because it alone decides what the broker hears. The timeout is outside of idempotency, so that
// it also ends a transaction that the handler runs in. Observe calls the hooks. Recover is innermost: a panic is an error
// for all others, and leases and transactions end as after any error.
func (c *chain) middlewares() []message.HandlerMiddleware {
	return []message.HandlerMiddleware{c.settle, c.trial, c.timeout, c.idempotency, c.observe, c.recover}
}

// handle is the end of the chain: it calls the handler.
func (c *chain) handle(msg *message.Message) ([]*message.Message, error) {
	r := runOf(msg)
	r.started = true
	killpoint.At(killpoint.BeforeHandler)
	err := c.handler.Handle(msg.Context(), r.env)
	if err == nil {
		killpoint.At(killpoint.AfterHandler)
	}
	return nil, err
}

// storeContext is for a call that must not end with the handler's time: what has happened is written down.
func storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}
