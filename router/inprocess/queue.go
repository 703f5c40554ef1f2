package inprocess

import (
	"context"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A Queue keeps messages in memory and runs handlers. Tx is the type of the transactions that callers pass and that it
// ignores; it is there so that the same code works with publishers.Outbox. Make one with [New]. It is safe for
// concurrent use.
type Queue[Tx any] struct{ core *core }

// New returns an empty queue.
func New[Tx any](cfg Config) *Queue[Tx] { return &Queue[Tx]{newCore(cfg.withDefaults())} }

// Publish takes messages and answers for each, as publishers.Outbox does. It does NOT wait for tx, nor heed its rollback:
// the messages are on their way when it returns. Either all are taken or, with an error, none.
func (q *Queue[Tx]) Publish(ctx context.Context, _ Tx, envs ...schema.Envelope) ([]schema.Receipt, error) {
	return q.core.publish(ctx, envs)
}

// PublishAlone is Publish without a transaction.
func (q *Queue[Tx]) PublishAlone(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error) {
	return q.core.publish(ctx, envs)
}

// Nudge does nothing: messages are on their way already. It is there so that a queue is called as an outbox is.
func (q *Queue[Tx]) Nudge() {}

// Durability returns [schema.InMemory].
func (q *Queue[Tx]) Durability(context.Context) (schema.Durability, string, error) {
	return schema.InMemory, "the in-process queue is lost when the process ends, and ignores the transaction", nil
}

// Target adds a target, whose jobs its handler gets from the next run on.
func (q *Queue[Tx]) Target(t handlers.Target) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return q.core.add(&lane{name: t.Name, what: "a target", handler: t.Handler, policy: t.Policy.OrDefault()})
}

// Subscribe adds a subscription, whose handler gets the events that go on their way from the next run on. From has no
// meaning here: there are no older events.
func (q *Queue[Tx]) Subscribe(s handlers.Subscription) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return q.core.add(&lane{name: s.Name, what: "a subscription", takes: s.Takes, handler: s.Handler, policy: s.Policy.OrDefault()})
}

// Run handles messages until ctx ends. Then it goes on with what is due, in order, for as long as [Config.CloseTimeout]
// allows, and says in the log what is left. It returns nil, or [ErrUnfinished] if time was up. Without
// [Config.AllowLoss] it returns [ErrLossy] at once.
func (q *Queue[Tx]) Run(ctx context.Context) error {
	if err := q.core.run(ctx); err != nil {
		return fmt.Errorf("run in-process queue: %w", err)
	}
	return nil
}

// Drain handles messages until none is due, and stops. Messages that wait for their next attempt or their time stay. It
// returns what it did, also with an error.
func (q *Queue[Tx]) Drain(ctx context.Context) (Tally, error) {
	return q.drain(ctx, false)
}

// DrainUntilEmpty handles messages until none waits any more, not even for its next attempt or its time. What is parked
// or dead stays. It returns what it did, also with an error.
func (q *Queue[Tx]) DrainUntilEmpty(ctx context.Context) (Tally, error) {
	return q.drain(ctx, true)
}

func (q *Queue[Tx]) drain(ctx context.Context, all bool) (Tally, error) {
	tally, err := q.core.drainOnce(ctx, all)
	if err != nil {
		return tally, fmt.Errorf("drain in-process queue: %w", err)
	}
	return tally, nil
}

// DeadLetters returns the messages that were given up, oldest first.
func (q *Queue[Tx]) DeadLetters() []schema.DeadLetter { return q.core.deadLetters() }

// Replay takes the dead letter of this handler and message id back into work, with the same idempotency key and a new
// count of attempts. It fails with [schema.ErrNotFound] if there is none.
func (q *Queue[Tx]) Replay(ctx context.Context, handler, id string) error {
	return q.core.replay(ctx, handler, id)
}

// Drop forgets a dead letter, or the parked messages with this id if handler is empty. It fails with
// [schema.ErrNotFound] if there is none.
func (q *Queue[Tx]) Drop(handler, id string) error { return q.core.drop(handler, id) }

// Parked returns the messages that nobody here handles, oldest first.
func (q *Queue[Tx]) Parked() []Parked { return q.core.parkedMessages() }
