// Package router runs a bridge: it forwards the outbox to JetStream and calls the handlers of targets and subscriptions.
//
// A [Bridge] is opened on a store and a NATS connection, told its targets and subscriptions, and run:
//
//	bridge, err := router.Open(ctx, router.Config{Store: store, Conn: conn})
//	...
//	err = bridge.Target(handlers.Target{Name: "billing", Handler: billing})
//	...
//	err = bridge.Run(ctx) // until ctx ends
//
// # The way of a message
//
// Each target and subscription has durable consumers of its own. Its messages go through Watermill middlewares,
// outermost first:
//
//   - settle decides what the broker hears: an ack, or when to hand the message out again. It records failures and
//     keeps what is given up as a dead letter.
//   - trial tells which message is to blame when a process dies with many in hand.
//   - timeout gives each attempt its time.
//   - idempotency asks the inbox whether the message's key is handled, given up or in other hands, and marks it as
//     handled; by a lease or in the handler's own transaction (see [handlers.Mode]).
//   - observe tells the handler which run it is part of, and calls [Config.Hooks].
//   - recover turns a panic into an error.
//
// What becomes of a message is decided by [handlers.Decide] from the policy, the number of the attempt and the kind of the
// error. Giving up goes in three steps, each of which may be repeated: the inbox records the verdict, the dead letter is
// written, the message is acked. A message that is not one of ours becomes a dead letter whole.
//
// A job that asks for a report ([schema.ReplyTo]) gets one for its end and one for the end of each replay: success, death
// or cancellation and the report are one transaction.
//
// # What processes share
//
// The rate and the breaker of a handler hold over all processes that serve it, by way of the database. While the circuit
// is open, messages that were handed out stay in hand: none is started, given back or counted, until a stop or the success
// of one that is tried. The job types of a handler that is one of [handlers.Actions] bring their own attempts and time
// limits; [Bridge.Run] refuses those that need more than the database and the streams give ([publishers.ErrTooWeak]).
//
// # Stopping
//
// When the context of [Bridge.Run] ends, nothing new is taken, and handlers that run keep a live context and have
// [Config.CloseTimeout] to finish. Then their contexts end, their messages come back later, and Run says how many.
package router
